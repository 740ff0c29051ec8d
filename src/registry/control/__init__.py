"""The control plane ``/v1``: repositories, images, tags, policies, storage and settings."""

"""Lifecycle policies, and the images that their rules select from."""

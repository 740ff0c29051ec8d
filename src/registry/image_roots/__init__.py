"""Images unpacked on a machine that runs instances: pulled, verified, and shared by layer."""

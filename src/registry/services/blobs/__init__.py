"""Use cases of blobs: pushed, mounted, read, healed."""

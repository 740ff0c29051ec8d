"""Use cases of images: pushed, read, deleted, restored, pinned."""

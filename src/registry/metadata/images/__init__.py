"""Rows of images: manifests, their trees, pins and tombstones."""

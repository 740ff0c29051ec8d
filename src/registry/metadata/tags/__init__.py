"""Rows of tags: their manifests, their history, and deleted tags."""

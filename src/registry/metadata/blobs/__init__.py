"""Rows of blobs: objects and links, upload sessions, marks of damage."""

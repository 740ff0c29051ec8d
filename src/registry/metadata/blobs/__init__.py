"""Rows of blobs: objects and links, uploads, damage."""

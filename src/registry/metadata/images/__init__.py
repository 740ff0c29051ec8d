"""Rows of images: manifests and their edges, relations between them, pins, tombstones.

- `manifests`: queries for ``/v2``
- `details`: queries for the lists of ``/v1``
- `relations`: what refers to an image
- `tombstones`: deleted images that can be restored
"""

"""Rows of images: manifests and their edges, relations between them, pins, tombstones.

`manifests` serves ``/v2``, `details` the lists of ``/v1``; `relations` finds what refers to an
image; `tombstones` are deleted images that can be restored.
"""

"""Use cases of images: push and read manifests, list, delete, restore and pin images.

`manifests` serves ``/v2``, `details` serves ``/v1``. All deletions go through `deletion`, all
restorations through `restoration`; `index_deletion` decides which images under an index to delete.
Manifests are parsed by `registry.oci.manifest`, large ones in the thread of documents
(`cloudcore.threads`).
"""

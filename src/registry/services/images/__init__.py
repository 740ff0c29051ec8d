"""Use cases of images: push and read manifests, list, delete, restore and pin images.

`manifests` serves ``/v2``, `details` serves ``/v1``. `deletion` and `restoration` are the only ways
out and back; `index_deletion` divides the tree of an index. Manifests are parsed by
`registry.oci.manifest`, large ones in the thread of documents (`cloudcore.threads`).
"""

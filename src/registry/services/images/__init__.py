"""Use cases of images: push and read manifests, list, delete, restore and pin images.

- `manifests`: requests of ``/v2``
- `details`, `image_contents`, `referrers`, `pins`: requests of ``/v1``
- `deletion`, `restoration`: the only code that deletes and restores images
- `index_deletion`: which images under an index are deleted with it
- `pulls`: times and numbers of pulls
- `manifest_damage`: damaged manifests

Manifests are parsed by `registry.oci.manifest`, large ones in the thread of documents
(`cloudcore.threads`).
"""

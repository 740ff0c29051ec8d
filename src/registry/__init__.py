"""The container registry, and its composition with the families of `cloudcore`.

- Drivers: `distribution` (``/v2``), `control` (``/v1``), `console` (web pages), `cli` (commands).
- Below the drivers: `services` (use cases), `metadata` (SQL), `blobstore` (bytes), `gc` (collector,
  scrub, sealing), `upstream` (other registries) and `oci` (grammars).
- Beside these layers: `backup`, `buckets` (bytes of the storage family) and `image_roots` (images
  of instances).
- `settings` are read and checked first; `composition` makes everything from them.

``pyproject.toml`` tells which package may import which.
"""

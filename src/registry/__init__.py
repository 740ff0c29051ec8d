"""The container registry, and the composition of the registry with the families of `cloudcore`.

Drivers: `distribution` (``/v2``), `control` (``/v1``), `console` (web pages), `cli` (commands).
Below them: `services` (use cases), `metadata` (SQL), `blobstore` (bytes), `gc` (collector, scrub,
sealing), `upstream` (other registries), `oci` (grammars). Beside them: `backup`, `buckets` (bytes
of the storage family) and `image_roots` (images of instances). `settings` are read and checked
first; `composition` makes everything from them. What may import what: ``pyproject.toml``.
"""

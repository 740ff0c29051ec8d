"""Images unpacked on a machine that runs instances: pulled, verified, and shared by layer.

`images` implements the port of the compute family, `layer_store` stores the layers. `unpack` is a
program of its own, so that what a layer can use is bounded; with `layer_streams`, `tar_entries`,
`layer_tree` and `file_locks` it imports nothing of the server.
"""

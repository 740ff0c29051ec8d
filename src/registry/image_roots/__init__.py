"""Images unpacked on a machine that runs instances: pulled, verified, and shared by layer.

`images` fills the port of the compute family, `layer_store` keeps the layers. `unpack` is a program
of its own, which bounds what a layer can use; with `layer_streams`, `tar_entries`, `layer_tree` and
`file_locks` it imports nothing of the server.
"""

"""Images unpacked on a machine that runs instances: pulled, verified, and shared by layer.

- `images`: pull images, as the port of the compute family requires; `image_config` reads them
- `layer_store`: store the unpacked layers
- `unpack`: a separate program that unpacks one layer, so that its memory and time can be limited

With `layer_streams`, `tar_entries`, `layer_tree` and `file_locks`, `unpack` imports nothing of the
server.
"""

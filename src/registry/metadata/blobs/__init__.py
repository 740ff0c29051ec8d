"""Rows of blobs: objects and the links that make them visible, wraps, upload sessions.

- `objects`: links and objects
- `damage`, `quarantine`: damaged objects, and bytes that no object uses any more
- `wraps`, `key_moves`: wrapped data keys of objects, and changes of the KMS key
- `inline`: the bytes of small objects
- `new_blobs`: all rows of a small push in one statement
- `uploads`, `upload_leases`, `upload_quota`: upload sessions
- `link_states`: checks that cached responses are still correct
"""

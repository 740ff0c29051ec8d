"""Rows of blobs: objects and the links that make them visible, wraps, upload sessions.

`objects` has links and objects; `damage` has damaged ones, `quarantine` deleted ones. `wraps` and
`key_moves` are about data keys, `inline` has the bytes of small objects, `new_blobs` writes all
rows of a small push in one statement. Sessions: `uploads`, `upload_leases`, `upload_quota`.
`link_states` proves that cached responses are still right.
"""

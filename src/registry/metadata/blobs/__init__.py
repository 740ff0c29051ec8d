"""Rows of blobs: objects and the links that make them visible, wraps, upload sessions.

`objects` has links and objects, `damage` and `quarantine` what is wrong and what is going,
`wraps` and `key_moves` their data keys, `inline` the bytes of small ones, `new_blobs` all rows of a
small push by one statement. Sessions: `uploads`, `upload_leases`, `upload_quota`. `link_states`
proves kept answers.
"""

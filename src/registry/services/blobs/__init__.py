"""Use cases of blobs: push, mount, read, heal, rewrap.

- `uploads`: the entry for pushes
- `upload_sessions`, `upload_leases`: find and hold the session of a push
- `small_uploads`, `staged_uploads`: store few bytes in the session's row, more in the store
- `deduplication`, `recording`: check an existing copy, then make the bytes a blob
- `sealing`: find the data keys of the bytes
- `reading`, `links`, `mounting`: blobs of a repository
- `rewrapping`: move a repository's blobs to another KMS key
- `damage`: damaged blobs
"""

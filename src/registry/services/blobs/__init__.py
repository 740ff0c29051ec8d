"""Use cases of blobs: push, mount, read, heal, rewrap.

`uploads` is the entry for pushes: `upload_sessions` and `upload_leases` find and hold the session;
few bytes are stored in its row (`small_uploads`), more in the store (`staged_uploads`); `recording`
makes the bytes a blob, after `deduplication` has checked an existing copy. `sealing` finds their
data keys. `reading`, `links` and `mounting` are about blobs of a repository, `damage` about broken
ones.
"""

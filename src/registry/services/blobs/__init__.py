"""Use cases of blobs: push, mount, read, heal, rewrap.

A push is `uploads`: its session is found by `upload_sessions` and `upload_leases`; few bytes are
kept in its row (`small_uploads`), more in the store (`staged_uploads`); `recording` makes them a
blob, after `deduplication` has checked an equal one. `sealing` has their data keys. `reading`,
`links` and `mounting` are about blobs of a repository, `damage` about broken ones.
"""

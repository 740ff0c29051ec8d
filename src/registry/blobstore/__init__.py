"""The blob store: bytes by object id. Only the database knows what an object is used for.

- `store`: the interface for other packages: read, write and sweep
- `opening`: open the stores that the settings name
- `disk`, `s3`: blocking calls on files or on a bucket, which `store` makes in threads
- `blocking`: the interface of these blocking calls
- `sealed`: the encrypted format, which both use
- `base`: types and errors that all modules share
- `reading`: open objects
- `inline`: small blobs, whose bytes are in the database
- `staging`, `staged_io`: parts of staging
- `locks`, `backups`: locks, and records of backup times

The package may import `registry.oci`, errors and settings, and of the database only the locks that
nodes share. Services and the collector import `store` and `base`, never `disk` or `s3`.
"""

"""The blob store: bytes by object id. Only the database knows what an object is used for.

`store` is what others call: to read, to write and to sweep; `opening` makes the one that the
settings name. `store` calls the files of `disk` or `s3` in threads, by the interface in `blocking`.
Both store the encrypted format in `sealed`. Beside them: `base` (shared types and errors),
`reading` (open objects), `inline` (small blobs, whose bytes are in the database), `staging` and
`staged_io` (parts of staging), `locks` and `backups`.

It may import `registry.oci`, errors and settings, and of the database nothing but the locks that
nodes share. Services and the collector import `store` and `base`, never `disk` or `s3`.
"""

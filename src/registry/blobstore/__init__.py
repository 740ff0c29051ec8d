"""The blob store: bytes by object id. Only the database knows what an object is used for.

`base` has the interfaces to read and to write, `sweeper` that of the collector; `opening` makes the
store that the settings name. The rooms are the two stores, `disk` and `s3`, and `sealed`, the
encrypted format that both store. Beside them: `inline` (small blobs, whose bytes are in the
database), `threaded_store`, `blocking`, `reading` and `threads` (a store whose calls block, behind
an interface whose calls do not), `staging` and `staged_io` (parts of staging), `locks` and
`backups`.

It may import `registry.oci`, errors and settings, and of the database nothing but the locks that
nodes share. Services and the collector import the interfaces, never `disk` or `s3`.
"""

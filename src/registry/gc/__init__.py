"""Background work over stored bytes: collect, check, scrub, seal, purge, recover.

`collection` deletes what nothing references, `purge` deletes what has expired, `orphans` deletes
bytes without a row. `fsck` compares store and database, `scrub` reads all bytes once per period;
both use `object_check` and `manifest_check`. `seal_run` encrypts plain objects (`object_sealing`),
`data_keys` shreds and checks data keys, `recovery` restores blobs from quarantine.
`database_rollback` stops all deletion under a database that is older than the bytes.

It calls services, queries and `registry.blobstore.store`, never the files of a disk or an S3.
Planes do not import it.
"""

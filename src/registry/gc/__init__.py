"""Background work over stored bytes: collect, check, scrub, seal, purge, recover.

- `collection`: delete blobs that nothing references
- `purge`: delete what has expired
- `orphans`: set aside and delete stored bytes without a row
- `fsck`: compare store and database
- `scrub`: read all bytes once per period
- `object_check`, `manifest_check`: checks that fsck and the scrub share
- `seal_run`, `object_sealing`: encrypt plain objects
- `data_keys`: shred and check data keys
- `recovery`: restore blobs from quarantine
- `database_rollback`: stop all deletion if the database is older than the bytes

The package calls services, queries and `registry.blobstore.store`, never the files of a disk or of
S3. Planes do not import it.
"""

"""The archive of a machine: backups and WAL of its servers, stored in buckets.

`bucket_archive` makes and restores backups, by pgBackRest of servers that run here, by
pg_basebackup of registered ones; `driver` has its orders and answers. Programs reach a bucket
with S3 keys of one cluster (`bucket_files`), through a relay that adds TLS (`s3_bridge`). `wal`
moves WAL between a server's spool and its bucket. `s3_bridge_program` and `unpacking` are run as
programs and import the standard library alone.
"""

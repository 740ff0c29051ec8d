"""The archive of a machine: backups and WAL of its servers, stored in buckets.

`driver` is the interface, `bucket_archive` implements it: by pgBackRest for servers that run here,
by pg_basebackup for registered ones. Programs reach a bucket with S3 keys of one cluster
(`bucket_files`), through a relay that adds TLS (`s3_bridge`). `wal` moves WAL between a server's
spool and its bucket. `s3_bridge_program` and `unpacking` are run as programs and import the
standard library alone.
"""

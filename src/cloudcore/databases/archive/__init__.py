"""The archive of a machine: backups and WAL of its servers, stored in buckets.

`bucket_archive` makes and restores backups: with pgBackRest for servers that run here, with
pg_basebackup for registered ones; `driver` has its parameter and result types. Programs reach a
bucket with S3 keys of one cluster (`bucket_files`), through a relay that adds TLS (`s3_bridge`).
`wal` moves WAL between a server's spool and its bucket. `s3_bridge_program` and `unpacking` run as
separate programs and import only the standard library.
"""

"""The archive of a machine: backups and WAL of its servers, stored in buckets.

`driver`: parameter and result types.
`bucket_archive`: makes and restores backups: by `pgbackrest` for servers that run here, by
    pg_basebackup (`basebackups`) for registered ones.
`bucket_files`: files of a cluster in its bucket, and S3 keys of one cluster for programs.
`s3_bridge`: a relay that adds TLS, through which programs reach a bucket.
`wal`: moves WAL between a server's spool and its bucket.

`s3_bridge_program` and `unpacking` run as separate programs and import only the standard library.
"""

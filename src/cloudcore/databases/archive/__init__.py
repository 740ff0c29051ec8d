"""The archive of a machine: backups and WAL of its servers, stored in buckets.

`driver`: parameter and result types.
`bucket_archive`: makes and restores backups: by `pgbackrest` for servers that run here, by
    pg_basebackup (`basebackups`) for registered ones.
`bucket_files`: reads and writes the files of a cluster in its bucket; issues S3 keys for them.
`s3_bridge`: a relay that adds TLS, through which programs reach a bucket.
`wal`: moves WAL between the spool folder of a server and the bucket.

`s3_bridge_program` and `unpacking` run as separate programs and import only the standard library.
"""

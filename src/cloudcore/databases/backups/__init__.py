"""Backups of clusters: made on request or by a schedule, verified, restored and deleted.

`backup`: the resource; `backups`, `routes` and `rows` implement ``/v1``.
`workflow`: makes, verifies and deletes backups in the archive (`cloudcore.databases.archive`), one
    at a time for each cluster.
`schedules`: requests the backups that are due (`cron`).
`restore`: restores a backup into a new cluster, which `restore_requests` inserts.
"""

"""Backups of clusters: made on request or by a schedule, verified, restored and deleted.

`backup` describes one; `routes`, `backups` and `rows` implement ``/v1``. `workflow` makes, verifies
and deletes backups in the archive (`cloudcore.databases.archive`), one at a time for each cluster.
`schedules` requests the backups that are due (`cron`), and `restore` restores one into a new
cluster.
"""

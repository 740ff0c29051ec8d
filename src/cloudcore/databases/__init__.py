"""Database clusters and their backups.

`clusters` is ``/v1/clusters`` and their workflow; `backups` is the backups of a cluster, their
schedule and their restoration. On the cluster's machine, both use `servers`, which run PostgreSQL,
and the `archive`, which stores backups and WAL in a bucket; of these two rooms, only the two
watches read clusters.
"""

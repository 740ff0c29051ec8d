"""Database clusters and their backups.

`clusters` is ``/v1/clusters`` and their workflow; `backups` is the backups of a cluster, their
schedule and their restoration. On the cluster's machine, both use `servers`, which runs PostgreSQL,
and `archive`, which stores backups and WAL in a bucket. Only the watches of these two packages read
the rows of clusters.
"""

"""Database clusters and their backups.

`clusters` is ``/v1/clusters`` and their workflow, `backups` the backups of a cluster, their
schedule and their restoration. Both use two interfaces: `servers.driver` runs PostgreSQL on a
machine, `archive.archive` stores backups and WAL in a bucket. The rest of `servers` and `archive`
implements these, and runs on the cluster's machine; of it, only the two watches read clusters.
"""

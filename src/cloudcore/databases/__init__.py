"""Database clusters and their backups.

`clusters` is ``/v1/clusters`` and their workflow; `backups` is the backups of a cluster, their
schedule and their restoration. Both use two interfaces: `servers.driver` runs PostgreSQL on a
machine, `archive.driver` stores backups and WAL in a bucket. The other modules of `servers` and
`archive` implement these on the cluster's machine; of them, only the two watches read clusters.
"""

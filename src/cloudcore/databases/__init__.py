"""Database clusters and their backups.

`clusters`: ``/v1/clusters``, and the workflow that makes, starts and stops clusters.
`backups`: backups of a cluster, their schedule and their restoration.
`servers`: runs PostgreSQL on the cluster's machine.
`archive`: stores backups and WAL in a bucket.

In `servers` and `archive`, only the watches read the rows of clusters.
"""

"""Clusters: servers of PostgreSQL, run here or registered from elsewhere.

`cluster`: the resource; `routes`, `bodies`, `clusters` and `rows` implement ``/v1``.
`workflow`: makes, starts and stops a server through a driver, or checks a registered one
    (`endpoints`).
`states`: stores and publishes the status of a cluster.
"""

"""Clusters: servers of PostgreSQL, run here or registered from elsewhere.

`cluster` describes one; `routes`, `clusters` and `rows` create, change and delete them. `workflow`
has a driver make, start and stop the server, or connects to a registered one (`endpoints`).
`states` stores and publishes their status.
"""

"""Clusters: servers of PostgreSQL, run here or registered from elsewhere.

`cluster` describes one; `routes`, `clusters` and `rows` create, change and delete them. `workflow`
makes, starts and stops the server through a driver, or connects to a registered one (`endpoints`).
`states` stores and publishes their status.
"""

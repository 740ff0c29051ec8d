"""Servers of PostgreSQL on a machine, which outlive the service.

`bubblewrap` runs them: each server is confined, has neither credentials nor a network, and has a
`shim` process beside it; `driver` has the parameter and result types. `watch` restarts servers that
ended and sets aside the data of those without a row. Restored data are untrusted (`data_folders`).
Only `watch` reads and writes rows.
"""

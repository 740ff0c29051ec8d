"""Servers of PostgreSQL on a machine, which outlive the service.

`driver`: parameter and result types.
`bubblewrap`: runs the servers. Each is confined (`confinement`), has neither credentials nor a
    network, and has a `shim` process beside it.
`postgres`: command lines, settings and SQL of a server.
`data_folders`: makes restored data, which are untrusted, safe to start.
`locks`: one process of a machine at a time works on a server.
`watch`: restarts servers that ended, and sets aside the data of those without a row. Only this
    module reads and writes rows.
"""

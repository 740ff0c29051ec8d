"""Use cases of the registry, called by both planes, the collector and the command line.

A service is a function that takes a transaction; it is async only where it waits for bytes or
another server. It checks the rights that depend on rows, changes rows by the queries of
`registry.metadata`, and writes events and the audit log in the same transaction. `context` has what
every service needs; `changes` describes who makes a change. The packages: `access`, `blobs`,
`images`, `lifecycle`, `pull_through`, `repositories`, `tags`.

Services contain no SQL and no HTTP. They may import metadata, `registry.blobstore.store`, the
client of upstreams, keys and the kernel. A service may return a response body (`ResponseBody`); in
a batch, a failed item has its error code in that body (`cloudcore.error_codes`).
"""

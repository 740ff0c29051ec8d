"""Use cases of the registry, called by both planes, the collector and the command line.

A service checks the rights that depend on rows, changes rows by the queries of `registry.metadata`,
and records events and audit in the same transaction. It is a function of a transaction, and async
only where it waits for bytes or another server. `context` has what every call needs; `changes` who
makes a change. Rooms are nouns: `access`, `blobs`, `images`, `lifecycle`, `pull_through`,
`repositories`, `tags`.

No SQL, no HTTP: it may import metadata, the interfaces of store and upstreams, keys and the kernel.
"""

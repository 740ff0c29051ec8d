"""Use cases of the registry, called by both planes, the collector and the command line.

A service checks the rights that depend on rows, changes rows by the queries of `registry.metadata`,
and records events and audit in the same transaction. It is a function of a transaction, and async
only where it waits for bytes or another server. `context` has what every call needs; `changes` who
makes a change. Rooms are nouns: `access`, `blobs`, `images`, `lifecycle`, `pull_through`,
`repositories`, `tags`.

No SQL, no HTTP: it may import metadata, `registry.blobstore.store`, the client of upstreams, keys
and the kernel. What a service returns may be the body of an answer (`ResponseBody`); an item of a
batch that fails has the code of its error there (`cloudcore.error_codes`).
"""

"""Back up a registry beside its server, and restore it into an empty folder.

- `taking`, `restoring`: the two commands
- `stores`: the stores that are copied from or to
- `copying`, `objects`: copy blobs and the pieces of buckets
- `postgresql`, with `programs` and `catalog`: dump and restore a PostgreSQL database
- `manifest`: the contents of a backup
- `files`: copy files durably
"""

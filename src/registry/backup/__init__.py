"""Back up a registry beside its server, and restore it into an empty folder.

`taking` and `restoring` are the two commands; `stores` opens what is copied, `copying` and
`objects` copy blobs, `postgresql` (with `programs` and `catalog`) dumps the database. `manifest`
says what a backup holds, `files` writes durably.
"""

"""The blob store on a local disk.

- `store`: the store; `files`: its blocking calls, with one file for each object
- `folders`: the open folders, and the file with the database generation
- `staged_file`: the file of an upload
- `growing_file`: read the file of an upload while it grows
- `copying`: copy the first bytes of an upload or object
- `stored_file`: an object open for reading
- `orphans`: files set aside
- `disk_io`: calls of the operating system: flushes, free space, lookups without waiting
"""

"""The blob store on a local disk.

`store` is the store; `files` are its blocking calls, with one file for each object below `folders`.
`staged_file` is the file of an upload, `growing_file` reads it meanwhile, `copying` copies the
beginning of one, `stored_file` is an object open for reading, `orphans` are files set aside.
`disk_io` has calls of the operating system: flushes, free space, lookups without waiting.
"""

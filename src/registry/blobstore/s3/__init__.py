"""The blob store in a bucket of any S3, which many nodes share (``docs/how-to/s3-store.md``).

`store` is the store; `files` are its blocking calls. The calls of S3 are in `bucket`, with
`responses`; no other module knows boto3. `bucket_layout` has the keys. An upload is `staged`: its
bytes pass through `encodings` and `parts`, in bounded `memory`; `uploads` has the state that
uploads share. Objects are read by `objects`, or through the cache on the machine's disk
(`disk_cache`, `cached_objects`); uploads by `growing` and `copying`. `presigned_urls` sends clients
to the bucket, `bucket_check` tests a bucket before it is used.
"""

"""The blob store in a bucket of any S3, which many nodes share (``docs/how-to/s3-store.md``).

- `store`: the store, whose calls run in threads; `files`: these blocking calls
- `bucket`, `responses`: calls to S3, and its errors; no other module uses boto3
- `bucket_layout`: the keys, and the content of tails
- `staged`, `encodings`, `parts`, `memory`: receive an upload in bounded memory
- `uploads`: state that uploads share
- `objects`: read objects; `cached_objects`, `disk_cache`: through the cache on the machine's disk
- `growing`, `copying`: read uploads
- `orphans`: mark orphans
- `presigned_urls`: redirect clients to the bucket
- `bucket_check`: test a bucket before it is used
"""

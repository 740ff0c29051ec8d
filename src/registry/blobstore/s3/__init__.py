"""The blob store in a bucket of any S3, which many nodes share (``docs/how-to/s3-store.md``).

`store` is the store; `files` makes its calls, which block. Those of S3 itself are in `bucket`.
"""

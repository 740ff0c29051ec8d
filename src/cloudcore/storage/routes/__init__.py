"""``/v1/buckets``: routes and bodies of buckets, objects and multipart uploads.

`cloudcore.storage.s3` presents the same operations as S3. Both call the functions in
`cloudcore.storage`, with the same IAM actions. Rules and queries do not belong here.
"""

"""``/v1/buckets``: routes and bodies of buckets, objects and multipart uploads.

The other presentation of the same operations is `cloudcore.storage.s3`; both call the functions
above them, and have the same actions. Rules and queries do not belong here.
"""

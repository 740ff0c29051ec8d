"""Buckets and objects, with two presentations: ``/v1`` and S3.

`bucket` has the rules of names, keys and tags. `buckets`, `objects` and `multipart` make changes,
each in a transaction; `object_writes` and `object_reads` move the bytes. An object is a sequence of
*pieces*, each stored separately and sealed under a key of its own (`piece_rows`, `piece_keys`). The
store of the bytes and the KMS keys come through the ports in `needs`. `*_routes` are ``/v1``, `s3`
is the S3 endpoint.
"""

"""Buckets and objects, with two presentations: ``/v1`` and S3.

`bucket` has the rules of names, keys and tags. `buckets`, `objects` and `multipart` make changes,
each in a transaction; `storing` and `reading` move the bytes. An object is a sequence of *pieces*,
each stored by itself and sealed under a key of its own (`piece_rows`, `piece_keys`). The store of
the bytes and the KMS keys come through the ports in `needs`. `*_routes` are ``/v1``, `s3` the
endpoint.
"""

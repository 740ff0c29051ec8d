"""Buckets and objects, with two presentations: ``/v1`` (`routes`) and S3 (`s3`).

`bucket` has the rules of names, keys and tags. `buckets` finds and authorizes the bucket of a
request; it, `objects` and `multipart` make changes, each in a transaction, using the queries in
`*_rows` and `tables`. `object_writes` and `object_reads` move the bytes. An object is a sequence of
*pieces*, each stored separately and sealed under a key of its own (`pieces`). The store of the
bytes and the KMS keys come through the ports in `needs`. The presentations add no rules of their
own.
"""

"""Buckets and objects, with two presentations: ``/v1`` (`routes`) and S3 (`s3`).

- `bucket`: rules of names, keys and tags
- `buckets`: find, authorize and change buckets
- `objects`, `multipart`: find and change objects and uploads, in one transaction each
- `object_writes`, `object_reads`: move the bytes
- `tables`, `*_rows`: tables and queries
- `pieces`: an object is a sequence of *pieces*, each stored separately and sealed under its own key
- `needs`: the ports to the store of the bytes and to the KMS keys

The presentations add no rules of their own.
"""

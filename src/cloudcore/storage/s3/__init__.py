"""The S3-compatible endpoint of the storage family.

`app` handles a request in this order:

- `requests` parses it
- `operations` selects the operation, with the IAM action of the same operation on ``/v1``
- `signature` authenticates the caller
- the action is authorized on the bucket or object, unless the handler does that itself
- the handler runs: a function in a `*_calls` module or in `bucket_configurations`

`payloads` receives and verifies bodies (`chunked`, `documents`, `forms`), `answers` writes XML. The
rules of buckets and objects are in `cloudcore.storage`.
"""

"""The S3-compatible endpoint of the storage family.

`app` parses a request (`requests`), determines its operation and the IAM action of the same
operation on ``/v1`` (`operations`), and authenticates the caller (`signature`). It authorizes the
operation on the request's bucket or object, unless the handler does that itself, and calls the
handler, in one of the `*_calls` modules or in `bucket_configurations`. `payloads` receives and
verifies bodies (`chunked`, `documents`, `forms`), `answers` writes XML. Rules of buckets and
objects are in `cloudcore.storage`.
"""

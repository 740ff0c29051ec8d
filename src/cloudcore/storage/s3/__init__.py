"""The S3-compatible endpoint of the storage family.

`app` authenticates a request (`signature`), finds its operation (`requests`), authorizes it by the
same action as on ``/v1``, and calls a handler in one of the `*_calls`. `payloads` receives and
verifies bodies (`chunked`, `documents`, `forms`), `answers` writes XML. Rules of buckets and
objects are in `cloudcore.storage`.
"""

"""The storage family: buckets and objects, with two presentations: ``/v1`` and S3."""

"""The operations of the S3 API: how requests select them, their handlers and IAM actions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from cloudcore.storage.s3 import bucket_calls, list_calls, object_calls, post_calls, upload_calls
from cloudcore.storage.s3 import bucket_configurations as configurations
from cloudcore.storage.s3.answers import Answer
from cloudcore.storage.s3.call import S3Call
from cloudcore.storage.s3.errors import S3Error
from cloudcore.storage.s3.forms import is_form
from cloudcore.storage.s3.requests import S3Request, no_version


class Operation(NamedTuple):
    """An operation of the S3 API."""

    handler: Callable[[S3Call], Awaitable[Answer]]
    action: str
    """The IAM action, without the service, of the same operation on ``/v1``."""
    finds_bucket: bool = True
    """Before the handler is called, authorize the action on the bucket or object and find the
    bucket. If False, the handler does both."""
    is_change: bool = False
    """The operation is recorded in the audit log."""
    is_global: bool = False
    """A signature for AWS's first region, ``us-east-1``, is accepted too."""
    takes_form: bool = False
    """The request is a form, and its policy is signed instead of the request."""


_finds_it_itself: Final = partial(Operation, finds_bucket=False)
_change: Final = partial(Operation, is_change=True)
_OF_BUCKETS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", ""): _finds_it_itself(list_calls.list_objects, "ListObjects"),
    ("GET", "acl"): Operation(configurations.get_bucket_acl, "GetBucket"),
    ("GET", "cors"): Operation(bucket_calls.get_bucket_cors, "GetBucketCORS"),
    ("GET", "encryption"): Operation(configurations.get_bucket_encryption, "GetBucket"),
    ("GET", "location"): Operation(bucket_calls.get_bucket_location, "GetBucket", is_global=True),
    ("GET", "tagging"): Operation(configurations.get_bucket_tagging, "GetBucket"),
    ("GET", "uploads"): Operation(upload_calls.list_uploads, "ListMultipartUploads"),
    ("GET", "versions"): _finds_it_itself(list_calls.list_versions, "ListObjects"),
    ("HEAD", ""): Operation(bucket_calls.head_bucket, "GetBucket"),
    ("PUT", ""): _finds_it_itself(
        bucket_calls.create_bucket, "CreateBucket", is_change=True, is_global=True
    ),
    ("PUT", "acl"): Operation(configurations.put_bucket_acl, "GetBucket"),
    ("PUT", "cors"): _change(bucket_calls.put_bucket_cors, "PutBucketCORS"),
    ("PUT", "encryption"): Operation(configurations.put_bucket_encryption, "GetBucket"),
    ("PUT", "tagging"): _change(configurations.put_bucket_tagging, "UpdateBucket"),
    ("POST", ""): _finds_it_itself(post_calls.post_object, "PutObject", takes_form=True),
    ("POST", "delete"): _finds_it_itself(object_calls.delete_objects, "DeleteObject"),
    ("DELETE", ""): _change(bucket_calls.delete_bucket, "DeleteBucket"),
    ("DELETE", "cors"): _change(bucket_calls.delete_bucket_cors, "PutBucketCORS"),
    ("DELETE", "encryption"): Operation(configurations.delete_bucket_encryption, "GetBucket"),
    ("DELETE", "tagging"): _change(configurations.delete_bucket_tagging, "UpdateBucket"),
    **{of: Operation(each, "GetBucket") for of, each in configurations.DESCRIPTIONS.items()},
}
_OF_OBJECTS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", ""): Operation(object_calls.get_object, "GetObject"),
    ("GET", "acl"): Operation(object_calls.get_object_acl, "GetObject"),
    ("GET", "attributes"): Operation(object_calls.get_object_attributes, "GetObject"),
    ("GET", "legal-hold"): Operation(object_calls.refuse_lock, "GetObject"),
    ("GET", "retention"): Operation(object_calls.refuse_lock, "GetObject"),
    ("GET", "tagging"): Operation(object_calls.get_object_tagging, "GetObject"),
    ("GET", "uploadId"): Operation(upload_calls.list_parts, "ListParts"),
    ("HEAD", ""): Operation(object_calls.get_object, "GetObject"),
    ("PUT", ""): Operation(object_calls.put_object, "PutObject"),
    ("PUT", "acl"): Operation(object_calls.put_object_acl, "PutObject"),
    ("PUT", "legal-hold"): Operation(object_calls.refuse_lock, "GetObject"),
    ("PUT", "retention"): Operation(object_calls.refuse_lock, "GetObject"),
    ("PUT", "tagging"): Operation(object_calls.put_object_tagging, "PutObject"),
    ("PUT", "uploadId"): Operation(upload_calls.upload_part, "PutObject"),
    ("POST", "uploads"): _change(upload_calls.create_upload, "PutObject"),
    ("POST", "uploadId"): _change(upload_calls.complete_upload, "PutObject"),
    ("DELETE", ""): Operation(object_calls.delete_object, "DeleteObject"),
    ("DELETE", "tagging"): Operation(object_calls.delete_object_tagging, "DeleteObject"),
    ("DELETE", "uploadId"): _change(upload_calls.abort_upload, "AbortMultipartUpload"),
}
_OPERATIONS: Final = {
    "service": {
        ("GET", ""): _finds_it_itself(list_calls.list_buckets, "ListBuckets", is_global=True)
    },
    "bucket": _OF_BUCKETS,
    "object": _OF_OBJECTS,
}
"""By level, then by (method, selecting query parameter or "")."""
_COPIES: Final = {
    ("PUT", ""): _finds_it_itself(object_calls.copy_object, "PutObject"),
    ("PUT", "uploadId"): _finds_it_itself(upload_calls.copy_part, "PutObject"),
}
"""The operations of a PUT of an object that has an ``x-amz-copy-source``."""
_LIST_OBJECTS_V2: Final = _finds_it_itself(list_calls.list_objects_v2, "ListObjects")
_UNKNOWN: Final = (
    *("abac", "annotation", "append", "metadataConfiguration", "metadataInventoryTable"),
    *("metadataJournalTable", "metadataTable", "renameObject", "restore", "select", "session"),
    "torrent",
)
"""Query parameters that select operations of S3 which are not implemented here."""
_SELECTORS: Final = frozenset(
    {*_UNKNOWN, *(each for _, each in (*_OF_BUCKETS, *_OF_OBJECTS) if each)}
)
_READS: Final = ("GET", "HEAD", "OPTIONS")
_OF_CHANGES: Final = frozenset(("partNumber", "versionId", "x-id"))


def operation_of(request: S3Request) -> Operation:
    """Return the operation that a request selects.

    Raise `S3Error` if there is none, or it is not implemented here.
    """
    _check(request)
    fields, method = request.fields, request.method
    level = "service" if not request.bucket else "object" if request.key else "bucket"
    operations = _OPERATIONS[level]
    if all(method != each for each, _ in operations):
        raise S3Error("MethodNotAllowed", "The method is not allowed against this resource.")
    selectors = [name for name in fields if name in _SELECTORS]
    if len(selectors) > 1:
        raise S3Error("InvalidArgument", f"Conflicting query parameters: {', '.join(selectors)}")
    of = method, selectors[0] if selectors else ""
    found = operations.get(of)
    if found is None:
        raise S3Error(
            "NotImplemented", "A parameter or header you provided asks for what is not implemented."
        )
    if found.takes_form and not is_form(request.headers.get("content-type", "")):
        raise S3Error(
            "PreconditionFailed", "Bucket POST must be of the enclosure-type multipart/form-data"
        )
    if level == "object" and "x-amz-copy-source" in request.headers:
        found = _COPIES.get(of, found)
    if found is _OF_BUCKETS["GET", ""] and "list-type" in fields:
        if fields["list-type"] != "2":
            raise S3Error("InvalidArgument", "list-type is 2, or absent.")
        return _LIST_OBJECTS_V2
    return found


def _check(request: S3Request) -> None:
    """Refuse versions, a key without a bucket, and parameters that a change does not expect."""
    fields = request.fields
    if fields.get("versionId", "null") != "null":
        if request.method in ("PUT", "POST"):
            raise S3Error("InvalidArgument", "This operation does not accept a version-id.")
        raise no_version()
    if request.key and not request.bucket:
        raise S3Error("InvalidBucketName", "The path names no bucket.")
    if request.method in _READS:
        return
    for name in fields:
        if name not in _OF_CHANGES | _SELECTORS and not name.lower().startswith("x-amz-"):
            raise S3Error("NotImplemented", f"The parameter {name[:64]} is not known.")
    if "partNumber" in fields and "uploadId" not in fields:
        raise S3Error("InvalidArgument", "partNumber needs an uploadId.")

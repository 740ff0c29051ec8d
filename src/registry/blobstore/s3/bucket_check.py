"""Check that a bucket supports all calls of a store, with objects that are deleted afterwards."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Final

from registry.blobstore.s3.bucket import Bucket
from registry.blobstore.s3.responses import KeyExists, KeyMissing, OutsideObject, StoreRefused
from registry.errors import StoreUnavailable

_FIRST: Final = "store an object"
_BODY: Final = b"a trial of Entrepot\n"


def unsupported_calls(bucket: Bucket) -> Iterator[str]:
    """Yield a sentence for each call that the bucket does not support.

    Stop early if the bucket stores no object, or does not respond.
    """
    key = f"trial/{uuid.uuid4()}"
    for what, call in (
        (_FIRST, lambda: bucket.put(key, _BODY)),
        ("tell of an object", lambda: bucket.head(key)),
        ("read a range of an object", lambda: _read(bucket, key)),
        ("refuse to store a second object of a key (If-None-Match)", lambda: _again(bucket, key)),
        ("list objects", lambda: _check_listed(bucket, key)),
        ("tell what is absent (it needs s3:ListBucket)", lambda: bucket.find(f"{key}-absent")),
        ("store an object in parts", lambda: _send_parts(bucket, key)),
        ("list uploads in parts", lambda: list(bucket.begun("trial/"))),
        ("delete objects", lambda: bucket.delete_all([key, f"{key}-parts"])),
    ):
        why = _why_not(call)
        if why:
            yield f"the bucket does not {what}: {why}"
        if why and (what == _FIRST or why.startswith("the blob store does not answer")):
            return


def _why_not(call: Callable[[], object]) -> str:
    try:
        call()
    except StoreRefused as error:
        return error.code
    except StoreUnavailable as error:
        return error.message
    except (KeyMissing, KeyExists, OutsideObject) as error:
        return f"{error} says that it is absent, or another"
    return ""


def _read(bucket: Bucket, key: str) -> None:
    found = bucket.get(key, 2, 7)
    if found.body.read() != _BODY[2:7] or found.size != len(_BODY):
        raise StoreUnavailable("other bytes came")


def _again(bucket: Bucket, key: str) -> None:
    try:
        bucket.put(key, _BODY, is_new=True)
    except KeyExists:
        return
    raise StoreUnavailable("it was replaced")


def _check_listed(bucket: Bucket, key: str) -> None:
    if [each.key for each in bucket.listed(key)] != [key]:
        raise StoreUnavailable("it is not in the list")


def _send_parts(bucket: Bucket, key: str) -> None:
    name = f"{key}-parts"
    aborted = bucket.begin(name, "trial")
    bucket.abort(name, aborted)
    upload = bucket.begin(name, "trial")
    bucket.complete(name, upload, [bucket.send_part(name, upload, 1, _BODY)])
    if bucket.head(name).token != "trial":  # noqa: S105 - no secret
        raise StoreUnavailable("its metadata are lost")

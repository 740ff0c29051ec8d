"""PostObject: a form of a web page stores its file, if its signed policy allows that.

The fields take the place of the headers of a PutObject. The policy limits the fields, and the time
until which the form may be sent ("Creating a POST policy" of the S3 API reference).
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from cloudcore.clock import MICROSECONDS
from cloudcore.serving.asgi import receive_into
from cloudcore.storage import object_writes
from cloudcore.storage.bucket import check_tags
from cloudcore.storage.object_rows import StoredObject
from cloudcore.storage.object_writes import Digests, Terms
from cloudcore.storage.s3 import documents
from cloudcore.storage.s3.answers import Answer, Fields, empty, quoted, text, xml
from cloudcore.storage.s3.call import S3Call, encryption_headers
from cloudcore.storage.s3.errors import S3Error
from cloudcore.storage.s3.forms import MAX_FORM_BYTES, FileDecoder, PostForm
from cloudcore.storage.s3.object_headers import checksum_fields, read_attributes, read_conditions
from cloudcore.storage.s3.payloads import (
    AnnouncedValues,
    content_md5,
    header_checksum,
    read_algorithm,
)
from cloudcore.storage.s3.requests import S3Request

_MAX_CONDITIONS: Final = 200
_UNCOVERED: Final = ("file", "policy", "x-amz-signature")
_IGNORED: Final = "x-ignore-"
_LISTS: Final = ("content-type", "content-disposition")
"""Fields with a list of values, each of which must begin as a ``starts-with`` condition says."""
_MOST: Final = 1 << 62


class FormCondition(NamedTuple):
    """A condition of a policy on a form field."""

    field: str
    """In lower case."""
    value: str
    is_start: bool
    """True if the field must begin with `value`, which may be ""; False if both must be equal."""

    def holds(self, fields: Mapping[str, str]) -> bool:
        """Return True if the fields of a form satisfy the condition."""
        given = fields.get(self.field)
        if given is None:
            return False
        if not self.is_start:
            return given == self.value
        if self.field in _LISTS:
            return all(each.strip().startswith(self.value) for each in given.split(","))
        return given.startswith(self.value)


class PostPolicy(NamedTuple):
    """The decoded policy of a form."""

    expires: datetime
    conditions: Sequence[FormCondition]
    least: int = 0
    """Minimum bytes of the file."""
    most: int = _MOST

    def check(self, fields: Mapping[str, str], now: datetime) -> None:
        """Check that the policy allows a form with these fields now.

        Raise `S3Error` (AccessDenied) if the policy has expired, a condition does not hold, or a
        field has no condition.
        """
        if now >= self.expires:
            raise _denied("Policy expired.")
        for condition in self.conditions:
            if not condition.holds(fields):
                raise _denied(f"Policy Condition failed: {condition.field[:64]}")
        covered = {condition.field for condition in self.conditions}
        for name in fields:
            if name not in covered and name not in _UNCOVERED and not name.startswith(_IGNORED):
                raise _denied(f"Extra input fields: {name[:64]}")

    def check_size(self, size: int, *, is_whole: bool) -> None:
        """Refuse a file that is too large or, if `size` is the size of the whole file, too small.

        Raise `S3Error` (EntityTooLarge, EntityTooSmall).
        """
        if size > self.most:
            raise S3Error("EntityTooLarge", "Your proposed upload exceeds the maximum allowed size")
        if is_whole and size < self.least:
            raise S3Error(
                "EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size"
            )


def read_policy(encoded: str) -> PostPolicy:
    """Parse the policy of a form: JSON in Base64.

    Raise `S3Error` (InvalidPolicyDocument) if it is malformed.
    """
    try:
        document = msgspec.json.decode(b64decode(encoded, validate=True))
    except (ValueError, RecursionError):
        raise _invalid("Invalid JSON.") from None
    if not isinstance(document, dict) or set(document) != {"expiration", "conditions"}:
        raise _invalid("It has an expiration and conditions, and nothing else.")
    listed = document["conditions"]
    if not isinstance(listed, list) or not 1 <= len(listed) <= _MAX_CONDITIONS:
        raise _invalid("The conditions are a list that is not empty.")
    policy = PostPolicy(_expiration(document["expiration"]), [])
    conditions: list[FormCondition] = []
    for each in listed:
        match each:
            case ["content-length-range", least, most]:
                policy = policy._replace(least=_bytes(least), most=_bytes(most))
            case [str(kind), str(field), str(value)] if field.startswith("$"):
                conditions.append(FormCondition(field[1:].lower(), value, _is_start(kind)))
            case dict() if len(each) == 1:
                ((field, value),) = each.items()
                if not isinstance(value, str):
                    raise _invalid("A value of a condition is a text.")
                conditions.append(FormCondition(field.lower(), value, is_start=False))
            case _:
                raise _invalid("A condition is malformed.")
    return policy._replace(conditions=conditions)


def _is_start(kind: str) -> bool:
    if kind.lower() not in ("eq", "starts-with"):
        raise _invalid(f"{kind[:64]} is not a kind of condition; use eq or starts-with.")
    return kind.lower() == "starts-with"


def _expiration(given: object) -> datetime:
    try:
        found = datetime.fromisoformat(given if isinstance(given, str) else "")
    except ValueError:
        raise _invalid("Its expiration is malformed.") from None
    if found.tzinfo is None:
        raise _invalid("Its expiration names no time zone.")
    return found


def _bytes(given: Any) -> int:  # noqa: ANN401 - a value of JSON
    """Parse a size limit: a number, or as some clients write it, a string."""
    if isinstance(given, str) and given.isascii() and given.isdigit() and len(given) <= 18:
        given = int(given)
    if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given <= _MOST:
        raise _invalid("content-length-range has two numbers of bytes.")
    return given


def _invalid(reason: str) -> S3Error:
    return S3Error("InvalidPolicyDocument", f"Invalid Policy: {reason}")


def _denied(reason: str) -> S3Error:
    return S3Error("AccessDenied", f"Invalid according to Policy: {reason}")


T = TypeVar("T")

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_REDIRECT: Final = re.compile(r"https?://[!-~]+")
_OWN: Final = frozenset(("key", "policy", "bucket", "file", "success_action_status"))
_RENAMED: Final = {"acl": "x-amz-acl"}
_REDIRECTS: Final = ("success_action_redirect", "redirect")


def form_request(request: S3Request, form: PostForm) -> S3Request:
    """Return the PutObject request that a form represents: its fields become key and headers.

    Raise `S3Error` if the form has no `key` field, or a field is not valid as a header.
    """
    fields = form.fields
    if not fields.get("key"):
        raise S3Error("InvalidArgument", "Bucket POST must contain a field named 'key'.")
    headers = {}
    for name, value in fields.items():
        if name in _OWN or name in _REDIRECTS or name == "tagging":
            continue
        if _CONTROL.search(name + value):
            raise S3Error("InvalidArgument", f"The field {name[:64]} holds a control character.")
        headers[_RENAMED.get(name, name)] = value.encode().decode("latin-1")
    for name in ("origin", "host"):
        headers.pop(name, None)
    kept = {name: value for name, value in request.headers.items() if name in ("origin", "host")}
    key = fields["key"].replace("${filename}", form.filename)
    if "\0" in key:
        raise S3Error("InvalidArgument", "A key cannot hold a null character.")
    return request._replace(key=key, headers=headers | kept)


async def post_object(call: S3Call) -> Answer:
    """PostObject: store the file of a form whose policy is signed."""
    form = call.form
    assert form is not None
    policy = read_policy(form.fields["policy"])
    fields = dict(form.fields) | {"key": call.request.key}
    if fields.setdefault("bucket", call.request.bucket) != call.request.bucket:
        raise S3Error("InvalidArgument", "The field bucket is not the bucket of the request.")
    policy.check(fields, datetime.fromtimestamp(call.now / MICROSECONDS, UTC))
    bucket = await call.find_bucket()
    attributes = read_attributes(call.request.headers, bucket.account_id)
    if "tagging" in fields:
        attributes = attributes._replace(tags=documents.read_tags(fields["tagging"].encode()))
        check_tags(attributes.tags)
    encryption = encryption_headers(call)
    announced = _read_announced(call)

    def verify(digests: Digests) -> None:
        policy.check_size(digests.size, is_whole=True)
        announced.check(digests, {})

    async def file(sink: Callable[[memoryview], None], finish: Callable[[bool], T], /) -> T:
        size = 0

        def limited(view: memoryview) -> None:
            nonlocal size
            size += len(view)
            policy.check_size(size, is_whole=False)
            sink(view)

        decoder = FileDecoder(limited, form)

        def end(is_complete: bool) -> T:  # noqa: FBT001 - the signature of a body's end
            if is_complete:
                decoder.finish()
            return finish(is_complete)

        return await receive_into(call.scope, call.receive, decoder.write, end)

    stored = await object_writes.store_object(
        call.needs,
        call.events,
        bucket,
        call.request.key,
        attributes,
        file,
        Terms(_least_size(call, form), announced.algorithm, verify),
        read_conditions(call.request.headers),
    )
    told = [("etag", quoted(stored.etag)), *checksum_fields(stored.checksum), *encryption]
    return _answer(call, form.fields, stored, told)


def _read_announced(call: S3Call) -> AnnouncedValues:
    """Return the announced values of a form's file.

    Raise `S3Error` if the values contradict each other, or are malformed.
    """
    algorithm, checksum = header_checksum(call)
    named = call.header("x-amz-checksum-algorithm")
    if named is not None:
        wanted = read_algorithm(named)
        if (algorithm or wanted) is not wanted:
            raise S3Error("BadDigest", "x-amz-checksum-algorithm names another algorithm.")
        algorithm = wanted
    digest = content_md5(call.header("content-md5"))
    return AnnouncedValues(None, None, digest, algorithm, checksum, None)


def _least_size(call: S3Call, form: PostForm) -> int | None:
    """Return a lower bound of the file's size, from the body's length; None if that is unknown.

    At most `MAX_FORM_BYTES` are assumed to follow the file.
    """
    for name, value in call.scope["headers"]:
        if name == b"content-length" and value.isdigit() and len(value) <= 18:
            ending = len(form.delimiter) + len(b"--\r\n")
            return max(int(value) - form.file_at - ending - MAX_FORM_BYTES, 0)
    return None


def _answer(call: S3Call, fields: Mapping[str, str], stored: StoredObject, told: Fields) -> Answer:
    bucket, key = call.request.bucket, stored.key
    for name in _REDIRECTS:
        target = fields.get(name, "")
        if _REDIRECT.fullmatch(target):
            query = urlencode({"bucket": bucket, "key": key, "etag": quoted(stored.etag)})
            mark = "&" if "?" in target else "?"
            return empty(303, [*told, ("location", f"{target}{mark}{query}")])
    path = call.scope["raw_path"].decode("latin-1").rstrip("/")
    host = call.header("host") or ""
    location = f"{call.scope['scheme']}://{host}{path}/{quote(key)}"
    told = [*told, ("location", location)]
    status = fields.get("success_action_status")
    if status == "201":
        content = [
            text("Location", location),
            text("Bucket", bucket),
            text("Key", key),
            text("ETag", quoted(stored.etag)),
        ]
        return xml("PostResponse", content, told, status=201, namespace=False)
    return empty(200 if status == "200" else 204, told)

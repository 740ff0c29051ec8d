"""Parse a request of the S3 endpoint: its bucket and its key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from cloudcore.storage.bucket import MAX_KEY_BYTES
from cloudcore.storage.checksums import Algorithm
from cloudcore.storage.s3.errors import S3Error
from cloudcore.storage.s3.signature import Headers

MAX_FIELDS: Final = 100
_PORT: Final = re.compile(r":\d*$")


class S3Request(NamedTuple):
    """A parsed request."""

    method: str
    bucket: str
    """Empty if the request is for the service."""
    key: str
    """Empty if the request is for the bucket or the service."""
    fields: Mapping[str, str]
    """The query parameters."""
    headers: Mapping[str, str]
    """Values by lower-case name; values of a repeated header are joined by commas. Includes
    ``x-amz-`` headers that were sent in the query."""


_NO_HEADERS: Final = frozenset(
    (
        *("x-amz-algorithm", "x-amz-content-sha256", "x-amz-credential", "x-amz-date"),
        *("x-amz-expires", "x-amz-security-token", "x-amz-signature", "x-amz-signedheaders"),
        *(algorithm.header for algorithm in Algorithm),
    )
)
"""Query parameters that are not read as headers: those of a signature, and checksums."""


def read_request(
    method: str, raw_path: bytes, query: bytes, headers: Headers, host: str
) -> S3Request:
    """Parse a request; `host` is the endpoint's host with buckets as subdomains, or empty.

    Raise `S3Error` if the path or the query is not UTF-8 or has a null character, the key is too
    long, or a query parameter is repeated or also sent as a header.
    """
    joined: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1").strip()
        joined[name] = f"{joined[name]},{value}" if name in joined else value
    path = _decode(raw_path)
    bucket = bucket_of_host(joined.get("host", ""), host)
    key = path[1:]
    if not bucket:
        bucket, _, key = key.partition("/")
    if len(key.encode()) > MAX_KEY_BYTES:
        raise S3Error("KeyTooLongError", "Your key is too long")
    if "\0" in path:
        raise S3Error("InvalidURI", "A key cannot hold a null character.")
    fields = _read_fields(query)
    for name, value in _headers_in_query(fields):
        if name in joined:
            raise S3Error("InvalidArgument", f"{name[:64]} is given twice, once in the query.")
        joined[name] = value
    return S3Request(method, bucket, key, fields, joined)


def bucket_of_host(received: str, host: str) -> str:
    """Return the bucket in a ``Host`` header below the endpoint's `host`; "" if there is none."""
    name = _PORT.sub("", received.lower()).removesuffix(".")
    suffix = f".{host}"
    return name[: -len(suffix)] if host and name.endswith(suffix) else ""


def read_copy_source(value: str) -> tuple[str, str]:
    """Return (bucket, key) in an ``x-amz-copy-source``.

    Raise `S3Error` if either is missing, or if the value has a version id or a null character.
    """
    path, _, version = value.partition("?versionId=")
    if version not in ("", "null"):
        raise no_version()
    source = _decode(path.encode("latin-1"))
    if "\0" in source:
        raise S3Error("InvalidArgument", "Copy Source holds a null character.")
    bucket, _, key = source.removeprefix("/").partition("/")
    if not bucket or not key:
        raise S3Error("InvalidArgument", "Copy Source must mention the source bucket and key")
    return bucket, key


def no_version() -> S3Error:
    """Return the error for a version id other than "null"."""
    return S3Error("NoSuchVersion", "The specified version does not exist: all are 'null' here.")


def _read_fields(query: bytes) -> dict[str, str]:
    """Return the decoded parameters of a query; as in the signature, ``+`` is a plus sign."""
    fields = [field for field in query.split(b"&") if field]
    if len(fields) > MAX_FIELDS:
        raise S3Error("InvalidArgument", "There are too many query parameters.")
    found: dict[str, str] = {}
    for field in fields:
        name, _, value = field.partition(b"=")
        decoded, text = _decode(name), _decode(value)
        if decoded in found:
            raise S3Error("InvalidArgument", "A query parameter is given more than once.")
        if "\0" in text:
            raise S3Error("InvalidArgument", "A query parameter holds a null character.")
        found[decoded] = text
    return found


def _headers_in_query(fields: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the headers that are sent in the query instead, decoded as headers are.

    SDKs put the ``x-amz-`` headers of presigned requests into the query. Checksums among them are
    ignored, as in S3: SDKs compute these before there is a body.
    """
    for name, value in fields.items():
        header = name.lower()
        if header.startswith("x-amz-") and header not in _NO_HEADERS:
            yield header, value.encode().decode("latin-1")


def _decode(encoded: bytes) -> str:
    try:
        return unquote_to_bytes(encoded).decode()
    except UnicodeDecodeError:
        raise S3Error("InvalidURI", "Couldn't parse the specified URI.") from None

"""Headers about objects: parse them in requests, and write them in answers.

Values of metadata are UTF-8, or encoded words (RFC 2047). Encoded words are parsed in one pass,
since a value may be as long as all headers together, and the parser of `email` takes quadratic
time. A value that is neither is left unchanged.
"""

from __future__ import annotations

import re
from binascii import Error as Base64Error
from binascii import a2b_base64, a2b_qp, b2a_base64
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

from cloudcore.errors import InvalidInput
from cloudcore.storage.bucket import (
    DEFAULT_CONTENT_TYPE,
    STORED_HEADERS,
    check_storage_class,
    check_tags,
    checked_metadata,
)
from cloudcore.storage.conditions import RequestConditions, etags
from cloudcore.storage.object_rows import ObjectAttributes, ObjectChecksum, StoredObject
from cloudcore.storage.s3.answers import Fields, http_time, quoted
from cloudcore.storage.s3.errors import S3Error
from cloudcore.web.query import parse_fields

_CHARSETS: Final = ("us-ascii", "utf-8", "iso-8859-1")
_ONE: Final = r"=\?[A-Za-z0-9-]{1,40}\?[bBqQ]\?[!->@-~]*\?="
_WORD: Final = re.compile(_ONE)
_WORDS: Final = re.compile(rf"{_ONE}(?:[ \t]+{_ONE})*")
"""The blanks between two encoded words are not part of the value."""


def read_value(header: str) -> str:
    """Decode the value of a header: UTF-8 or encoded words. `header` was decoded as Latin-1."""
    try:
        value = header.encode("latin-1").decode()
    except UnicodeDecodeError:
        return header
    try:
        return _WORDS.sub(_decoded, value)
    except (Base64Error, LookupError, UnicodeDecodeError):
        return value


def header_value(value: str) -> str:
    """Encode a value for a header: unchanged, or as one encoded word.

    `email.header.Header` would break lines at U+0085 and other separators.
    """
    if value.isascii() and value == value.strip() and read_value(value) == value:
        return value
    return f"=?utf-8?b?{b2a_base64(value.encode(), newline=False).decode()}?="


def _decoded(words: re.Match[str]) -> str:
    """Decode adjacent encoded words; a character may be split between two of them.

    Raise `Base64Error`, `LookupError` or `UnicodeDecodeError` if they are malformed.
    """
    parts: list[tuple[str, bytes]] = []
    for word in _WORD.findall(words[0]):
        charset, encoding, text = word[2:-2].split("?")
        charset = charset.lower()
        if charset not in _CHARSETS:
            raise LookupError(charset)
        is_base64 = encoding in "bB"
        part = a2b_base64(text, strict_mode=True) if is_base64 else a2b_qp(text, header=True)
        if parts and parts[-1][0] == charset:
            part = parts.pop()[1] + part
        parts.append((charset, part))
    return "".join(part.decode(charset) for charset, part in parts)


METADATA: Final = "x-amz-meta-"
_PRIVATE: Final = ("private", "bucket-owner-full-control")
"""The canned access lists that change nothing: a bucket's owner has full control anyway."""
_FULL_CONTROL: Final = "x-amz-grant-full-control"
_UNSUPPORTED: Final = (
    "x-amz-object-lock-",
    "x-amz-server-side-encryption-",
    "x-amz-website-redirect-location",
    "x-amz-copy-source-server-side-encryption-",
    "x-amz-write-offset-bytes",
)
_MAX_TAG_FIELDS: Final = 50


def read_attributes(headers: Mapping[str, str], owner_id: str) -> ObjectAttributes:
    """Return an object's attributes from the headers of an upload; `owner_id` owns the bucket.

    Raise `S3Error` if a header requests a feature that is not implemented, `InvalidInput` if
    metadata, tags or storage class are malformed.
    """
    check_supported(headers, owner_id)
    stored = {name: headers[name] for name in STORED_HEADERS if name in headers}
    if "content-encoding" in stored:
        encodings = [each.strip() for each in stored.pop("content-encoding").split(",")]
        kept = ", ".join(each for each in encodings if each and each.lower() != "aws-chunked")
        if kept:
            stored["content-encoding"] = kept
    storage_class = headers.get("x-amz-storage-class", "STANDARD")
    check_storage_class(storage_class)
    metadata = {
        name.removeprefix(METADATA): read_value(value)
        for name, value in headers.items()
        if name.startswith(METADATA)
    }
    return ObjectAttributes(
        headers.get("content-type") or DEFAULT_CONTENT_TYPE,
        stored,
        checked_metadata(metadata),
        read_tagging(headers.get("x-amz-tagging", "")),
        storage_class,
    )


def check_supported(headers: Mapping[str, str], owner_id: str) -> None:
    """Refuse headers that request a feature that is not implemented.

    `owner_id` is the account of the bucket. A grant of full control to this account is accepted,
    since the account has it anyway.

    Raise `S3Error` (NotImplemented, or AccessControlListNotSupported).
    """
    if headers.get("x-amz-acl", "private") not in _PRIVATE or any(
        name != _FULL_CONTROL or not _is_owner(value, owner_id)
        for name, value in headers.items()
        if name.startswith("x-amz-grant-")
    ):
        raise acl_refusal()
    if headers.get("x-amz-server-side-encryption", "AES256") != "AES256" or any(
        name.startswith(_UNSUPPORTED) for name in headers
    ):
        raise S3Error("NotImplemented", "A header you provided asks for what is not implemented.")


def _is_owner(grantees: str, owner_id: str) -> bool:
    """Return True if a grant header names only the owner."""
    name, _, value = grantees.partition("=")
    return name.strip().lower() == "id" and value.strip().strip('"') == owner_id


def acl_refusal() -> S3Error:
    """Return the error for an access control list other than the owner's full control."""
    return S3Error(
        "AccessControlListNotSupported",
        "Buckets do not allow ACLs: policies say who may read them.",
    )


def read_tagging(encoded: str) -> dict[str, str]:
    """Parse the tags in ``x-amz-tagging``.

    Raise `S3Error` if the header is malformed, `InvalidTag` if there are too many tags, or one is
    malformed.
    """
    if not encoded:
        return {}
    try:
        found = parse_fields(
            encoded.encode("latin-1"), max_fields=_MAX_TAG_FIELDS, unambiguous=True
        )
    except InvalidInput as error:
        raise S3Error("InvalidTag", f"x-amz-tagging: {error.message}") from None
    tags = dict(found)
    check_tags(tags)
    return tags


def read_conditions(headers: Mapping[str, str], prefix: str = "") -> RequestConditions:
    """Return the conditions of a request; with `prefix`, the conditions on the source of a copy."""

    def listed(name: str) -> tuple[str, ...] | None:
        value = headers.get(prefix + name)
        return None if value is None else etags(value)

    return RequestConditions(
        listed("if-match"),
        listed("if-none-match"),
        _seconds(headers.get(f"{prefix}if-modified-since")),
        _seconds(headers.get(f"{prefix}if-unmodified-since")),
        None if prefix else headers.get("if-range"),
    )


def identity_headers(found: StoredObject) -> Fields:
    """Return the headers that identify the content of an object: ETag and last modification."""
    return [("etag", quoted(found.etag)), ("last-modified", http_time(found.created_at))]


def object_fields(found: StoredObject) -> Fields:
    """Return the headers that describe an object, except those about length and range."""
    attributes = found.attributes
    fields = [
        *identity_headers(found),
        ("accept-ranges", "bytes"),
        ("content-type", attributes.content_type),
        *attributes.headers.items(),
    ]
    fields += [
        (METADATA + name, header_value(value)) for name, value in attributes.metadata.items()
    ]
    if attributes.tags:
        fields.append(("x-amz-tagging-count", str(len(attributes.tags))))
    if attributes.storage_class != "STANDARD":
        fields.append(("x-amz-storage-class", attributes.storage_class))
    return fields


def checksum_fields(checksum: ObjectChecksum | None) -> Fields:
    """Return the headers for a checksum: value and type; empty for None."""
    if checksum is None:
        return []
    return [
        (f"x-amz-checksum-{checksum.algorithm.lower()}", checksum.value),
        ("x-amz-checksum-type", checksum.kind),
    ]


def _seconds(header: str | None) -> int | None:
    """Parse the HTTP date in a header as Unix time; None if it is absent or malformed."""
    if header is None:
        return None
    try:
        return int(parsedate_to_datetime(header).timestamp())
    except (ValueError, OverflowError):
        return None

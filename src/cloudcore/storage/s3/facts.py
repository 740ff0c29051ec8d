"""What headers say of an object: on the way in, and on the way out."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

from cloudcore.errors import InvalidInput
from cloudcore.storage.conditions import Conditions, etags
from cloudcore.storage.object_rows import Checksum, Facts, StoredObject
from cloudcore.storage.rules import (
    DEFAULT_CONTENT_TYPE,
    STORED_HEADERS,
    check_storage_class,
    check_tags,
    checked_metadata,
)
from cloudcore.storage.s3 import encoded_words
from cloudcore.storage.s3.answers import Fields, http_time, quoted
from cloudcore.storage.s3.errors import S3Error
from cloudcore.web.urlencoded import parse_fields

METADATA: Final = "x-amz-meta-"
_PRIVATE: Final = ("private", "bucket-owner-full-control")
"""Canned access lists that say what is so: the owner of a bucket has full control of all in it."""
_FULL_CONTROL: Final = "x-amz-grant-full-control"
_UNSUPPORTED: Final = (
    "x-amz-object-lock-",
    "x-amz-server-side-encryption-",
    "x-amz-website-redirect-location",
    "x-amz-copy-source-server-side-encryption-",
    "x-amz-write-offset-bytes",
)
_MAX_TAG_FIELDS: Final = 50


def read_facts(headers: Mapping[str, str], owner_id: str) -> Facts:
    """Return what the headers of an upload say of its object, in a bucket of an account.

    Raises:
        S3Error: they ask for what is not implemented.
        InvalidInput: metadata, tags or storage class are malformed.

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
        name.removeprefix(METADATA): encoded_words.decode(value)
        for name, value in headers.items()
        if name.startswith(METADATA)
    }
    return Facts(
        headers.get("content-type") or DEFAULT_CONTENT_TYPE,
        stored,
        checked_metadata(metadata),
        read_tagging(headers.get("x-amz-tagging", "")),
        storage_class,
    )


def check_supported(headers: Mapping[str, str], owner_id: str) -> None:
    """Refuse headers that ask for what is not implemented.

    `owner_id` is the account of the bucket, which may be granted the full control that it has.

    Raises:
        S3Error: NotImplemented, or AccessControlListNotSupported.

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
    """Return True if the value of a header of grants names the owner alone."""
    name, _, value = grantees.partition("=")
    return name.strip().lower() == "id" and value.strip().strip('"') == owner_id


def acl_refusal() -> S3Error:
    """Return the refusal of access lists that let anybody else in, or the owner do less."""
    return S3Error(
        "AccessControlListNotSupported",
        "Buckets do not allow ACLs: policies say who may read them.",
    )


def read_tagging(encoded: str) -> dict[str, str]:
    """Return the tags of an ``x-amz-tagging``.

    Raises:
        InvalidInput: they are malformed, or too many.

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


def read_conditions(headers: Mapping[str, str], prefix: str = "") -> Conditions:
    """Return the conditions of a request; with `prefix`, those on the source of a copy."""

    def listed(name: str) -> tuple[str, ...] | None:
        value = headers.get(prefix + name)
        return None if value is None else etags(value)

    return Conditions(
        listed("if-match"),
        listed("if-none-match"),
        _seconds(headers.get(f"{prefix}if-modified-since")),
        _seconds(headers.get(f"{prefix}if-unmodified-since")),
        None if prefix else headers.get("if-range"),
    )


def named_fields(found: StoredObject) -> Fields:
    """Return the headers that tell which content an object has."""
    return [("etag", quoted(found.etag)), ("last-modified", http_time(found.created_at))]


def object_fields(found: StoredObject) -> Fields:
    """Return the headers that describe an object, without those of its length."""
    facts = found.facts
    fields = [
        *named_fields(found),
        ("accept-ranges", "bytes"),
        ("content-type", facts.content_type),
        *facts.headers.items(),
    ]
    fields += [
        (METADATA + name, encoded_words.encode(value)) for name, value in facts.metadata.items()
    ]
    if facts.tags:
        fields.append(("x-amz-tagging-count", str(len(facts.tags))))
    if facts.storage_class != "STANDARD":
        fields.append(("x-amz-storage-class", facts.storage_class))
    return fields


def checksum_fields(checksum: Checksum | None) -> Fields:
    """Return the headers of a checksum."""
    if checksum is None:
        return []
    return [
        (f"x-amz-checksum-{checksum.algorithm.lower()}", checksum.value),
        ("x-amz-checksum-type", checksum.kind),
    ]


def _seconds(header: str | None) -> int | None:
    """Return a time of a header in seconds; None if there is none, as of a malformed one."""
    if header is None:
        return None
    try:
        return int(parsedate_to_datetime(header).timestamp())
    except (ValueError, OverflowError):
        return None

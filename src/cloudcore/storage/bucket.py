"""Describe buckets, and check names, keys, tags, metadata and parts of objects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import Annotated, Final, Literal, get_args
from urllib.parse import quote

from msgspec import field

from cloudcore.metering.sku import BYTE_HOURS_PER_GIB_MONTH, GIB, Sku
from cloudcore.quotas.quota import Quota
from cloudcore.resources.resource import Filter, Record, Resource, fixed, given, own
from cloudcore.storage import errors

SERVICE: Final = "storage"
STORAGE: Final = Sku("storage.storage", "Stored objects", "GiB-month", BYTE_HOURS_PER_GIB_MONTH)
TRANSFER: Final = Sku("storage.transfer", "Bytes of objects read", "GiB", GIB)
REQUESTS: Final = Sku("storage.requests", "Requests of buckets", "1000 requests", 1000)
STORAGE_SKUS: Final = (STORAGE, TRANSFER, REQUESTS)


BUCKET_BYTES: Final = Quota("bucket_bytes", 1 << 40, "bytes in buckets", unit="bytes")
"""Bytes that an account may store. The install's default (`needs.ACCOUNT_BYTES`) replaces 1 TiB."""

StorageClass = Literal[
    "STANDARD",
    "DEEP_ARCHIVE",
    "EXPRESS_ONEZONE",
    "FSX_ONTAP",
    "FSX_OPENZFS",
    "GLACIER",
    "GLACIER_IR",
    "INTELLIGENT_TIERING",
    "ONEZONE_IA",
    "OUTPOSTS",
    "REDUCED_REDUNDANCY",
    "SNOW",
    "STANDARD_IA",
]
"""The storage classes of AWS. Objects of all classes are stored alike."""
OBJECT_CREATED: Final = "storage.object.created"
OBJECT_DELETED: Final = "storage.object.deleted"
"""The types of the events about objects."""
MAX_KEY_BYTES: Final = 1024
MAX_OBJECT_BYTES: Final = 5 << 30
"""Maximum bytes of a part, or of an object that is sent in one request."""
MAX_METADATA_BYTES: Final = 8192
MAX_OBJECT_TAGS: Final = 10
STORAGE_CLASSES: Final = get_args(StorageClass)
DEFAULT_CONTENT_TYPE: Final = "application/octet-stream"
STORED_HEADERS: Final = (
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "expires",
)
"""Headers of an upload that are stored, and returned with the object."""

_BUCKET: Final = re.compile(
    r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*"
)
_TAG_TEXT: Final = re.compile(r"[\w\s+\-=._:/@]*")
_IN_CRN: Final = "".join(map(chr, range(0x21, 0x7F))).translate(str.maketrans("", "", "%*?"))
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_METADATA_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")


def is_bucket_name(name: str) -> bool:
    """Return True for a DNS name of 3 to 63 characters that does not look like an IP address."""
    return 3 <= len(name) <= 63 and _BUCKET.fullmatch(name) is not None and not _is_address(name)


def check_bucket_name(name: str) -> None:
    """Raise `InvalidBucketName` unless `is_bucket_name` returns True."""
    if not is_bucket_name(name):
        raise errors.InvalidBucketName


def key_bytes(key: str) -> bytes:
    """Encode a key as UTF-8.

    Raise `KeyTooLong` if the key is empty, encodes to more than 1,024 bytes, or contains NUL or a
    surrogate.
    """
    encoded = key.encode("utf-8", "surrogatepass")
    if not 1 <= len(encoded) <= MAX_KEY_BYTES or "\0" in key:
        raise errors.KeyTooLong
    try:
        encoded.decode()
    except UnicodeDecodeError:
        raise errors.KeyTooLong from None
    return encoded


def object_crn(bucket_crn: str, key: str) -> str:
    """Return the CRN of an object: the bucket's, a slash and the key.

    Characters that are not allowed in a CRN, and ``%``, ``*`` and ``?``, are percent-encoded, so
    that no key is mistaken for a pattern or for another key.
    """
    return f"{bucket_crn}/{quote(key, safe=_IN_CRN)}"


def check_tags(tags: Mapping[str, str]) -> None:
    """Raise `InvalidTag` if an object has more than 10 tags, or malformed ones."""
    if len(tags) > MAX_OBJECT_TAGS:
        raise errors.InvalidTag(
            f"tags: an object has at most {MAX_OBJECT_TAGS}", field="tags", reason="out_of_range"
        )
    for name, value in tags.items():
        if (
            not 1 <= len(name) <= 128
            or len(value) > 256
            or not _TAG_TEXT.fullmatch(name + value)
            or not (name + value).isprintable()
        ):
            raise errors.InvalidTag(
                "tags: a key of 1 to 128 characters and a value of at most 256; letters, digits,"
                " spaces and + - = . _ : / @",
                field="tags",
                reason="malformed",
            )


def checked_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return metadata with names in lower case, as in headers.

    Raise `MetadataTooLarge` if a name is not a header name, a value has control characters, two
    names differ only in case, or names and values exceed 8 KiB in total.
    """
    lowered = {name.lower(): value for name, value in metadata.items()}
    size = sum(len(name) + len(value.encode()) for name, value in lowered.items())
    if (
        len(lowered) != len(metadata)
        or size > MAX_METADATA_BYTES
        or not all(map(_METADATA_NAME.fullmatch, lowered))
        or any(_CONTROL.search(value) for value in lowered.values())
    ):
        raise errors.MetadataTooLarge(
            "metadata: names as headers have them, values without control characters, together"
            f" at most {MAX_METADATA_BYTES} bytes",
            field="metadata",
            reason="malformed",
        )
    return lowered


def check_storage_class(name: str) -> None:
    """Raise `InvalidStorageClass` unless there is a storage class with this name."""
    if name not in STORAGE_CLASSES:
        raise errors.InvalidStorageClass(
            f"storage_class: one of {', '.join(STORAGE_CLASSES)}",
            field="storage_class",
            reason="not_one_of",
        )


def check_size(size: int, most: int = MAX_OBJECT_BYTES) -> None:
    """Raise `EntityTooLarge` if `size` exceeds `most`."""
    if size > most:
        raise errors.EntityTooLarge(f"at most {most} bytes", limit=most)


def _is_address(name: str) -> bool:
    try:
        IPv4Address(name)
    except ValueError:
        return False
    return True


class Bucket(Record, frozen=True, kw_only=True):
    """A bucket."""

    name: Annotated[str, fixed()]
    kms_key_id: Annotated[str | None, own(hidden=True)] = None
    """The KMS key that the bucket is bound to, or None for the account's platform key."""
    cors: Annotated[str | None, own(hidden=True)] = None
    """The bucket's CORS rules as JSON, or None."""
    tags: Annotated[Mapping[str, str], given()] = field(default_factory=dict)

    @property
    def crn(self) -> str:
        """Return the bucket's CRN."""
        return BUCKET.crn_of(self)


BUCKET: Final = Resource(
    record=Bucket,
    service="storage",
    one="bucket",
    many="buckets",
    table="storage_buckets",
    check_key=check_bucket_name,
    filters=(Filter("name"),),
    # The routes are written by hand: their paths contain the name, so that policies can refuse
    # before the bucket is looked up; lists are sorted by name; and a response includes the KMS key,
    # the usage and the progress of a rewrap.
    methods=(),
    actions={
        "create": "CreateBucket",
        "list": "ListBuckets",
        "get": "GetBucket",
        "update": "UpdateBucket",
        "delete": "DeleteBucket",
    },
    more_actions=("GetBucketCORS", "ListMultipartUploads", "ListObjects", "PutBucketCORS"),
    summaries={"storage:PutBucketCORS": "Set the CORS rules of a bucket, or take them away."},
    methods_with_events=("create", "delete"),
)

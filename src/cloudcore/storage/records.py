"""The bodies of ``/v1/buckets``: requests and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from cloudcore.storage.bucket import Bucket
from cloudcore.storage.bucket_rows import Held
from cloudcore.storage.bucket_status import Rewrap
from cloudcore.storage.bytes_port import KeyRef
from cloudcore.storage.cors import MAX_AGE_SECONDS, CorsRule
from cloudcore.storage.object_rows import Checksum, Entry, StoredObject
from cloudcore.storage.piece_rows import Piece
from cloudcore.storage.rules import DEFAULT_CONTENT_TYPE, MAX_PARTS, StorageClass
from cloudcore.storage.upload_rows import Upload
from cloudcore.uuids import Uuid
from cloudcore.web.fault_records import FaultRecord
from cloudcore.web.pagination import PageMeta, PageQuery
from cloudcore.web.references import KeyReference, reference_to
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, rfc3339

BucketName = Annotated[str, Meta(min_length=3, max_length=63)]
ObjectKey = Annotated[str, Meta(min_length=1, max_length=1024)]
ContentType = Annotated[str, Meta(max_length=256, pattern=r"^[ -~]+$(?!\n)")]
GivenKey = Annotated[
    str, Meta(max_length=512, description="The id, the name or the CRN of an `aes-256` key.")
]
_PATTERN = r"^[!-)+-~]*(?:\*[!-)+-~]*)?$(?!\n)"
_Origin = Annotated[str, Meta(min_length=1, max_length=256, pattern=_PATTERN)]
_Header = Annotated[str, Meta(min_length=1, max_length=128, pattern=_PATTERN)]
_Exposed = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[!-)+-~]+$(?!\n)")]


class CreateBucket(RequestBody):
    """A new bucket; its name and region are fixed."""

    name: BucketName
    """Unique in the region: letters, digits, `-` and `.`, as of a host."""
    region: str | None = None
    """This region; no other can be named."""
    kms_key: GivenKey | None = None
    """Seals what is stored; without it, the account's platform key does."""
    tags: dict[str, str] = field(default_factory=dict)


class UpdateBucket(RequestBody):
    """The fields to change; `tags` are replaced whole."""

    kms_key: GivenKey | UnsetType | None = UNSET
    """For what is stored from now on, and soon for all. Null: the account's platform key."""
    tags: dict[str, str] | UnsetType | None = UNSET


class BucketQuery(PageQuery):
    """The filter of a list of buckets."""

    name: BucketName | None = None
    """Only the bucket of this name."""


class BucketRecord(ResponseBody):
    """A bucket."""

    id: Uuid
    crn: str
    name: str
    region: str
    tags: dict[str, str]
    object_count: int
    byte_count: int
    """Of its objects."""
    upload_byte_count: int
    """Of parts of open multipart uploads."""
    created_at: RFC3339
    kms_key: KeyReference | UnsetType | None = UNSET
    """Of a single bucket. Null: the account has no key yet."""
    rewrap: Rewrap | UnsetType | None = UNSET
    """Of a single bucket: the last run that let its key open all that is stored. Null: none yet."""
    faults: Sequence[FaultRecord] | UnsetType = UNSET
    """Of a single bucket."""


class OneBucket(ResponseBody):
    """A bucket, wrapped."""

    bucket: BucketRecord


class ManyBuckets(ResponseBody):
    """A page of buckets."""

    buckets: Sequence[BucketRecord]
    meta: PageMeta


class CorsRuleRecord(RequestBody):
    """Which web pages may read and write from a browser."""

    allowed_origins: Annotated[list[_Origin], Meta(min_length=1, max_length=100)]
    """One `*` may stand for any characters."""
    allowed_methods: Annotated[
        list[Literal["GET", "PUT", "POST", "DELETE", "HEAD"]], Meta(min_length=1, max_length=5)
    ]
    allowed_headers: Annotated[list[_Header], Meta(max_length=100)] = field(default_factory=list)
    """That a page may send; one `*` may stand for any characters."""
    expose_headers: Annotated[list[_Exposed], Meta(max_length=100)] = field(default_factory=list)
    """That a page may read."""
    max_age_seconds: Annotated[int, Meta(ge=0, le=MAX_AGE_SECONDS)] | None = None
    """How long a browser may keep the answer to a preflight."""


class CorsRules(RequestBody):
    """The CORS rules of a bucket; the first that fits a request counts."""

    cors_rules: Annotated[list[CorsRuleRecord], Meta(min_length=1, max_length=100)]


class ObjectsQuery(PageQuery):
    """Which objects to list."""

    prefix: Annotated[str, Meta(max_length=1024)] = ""
    """Only keys that begin so."""
    delimiter: Annotated[str, Meta(max_length=64)] = ""
    """Keys that have it behind the prefix are listed as one common prefix, up to it."""


class ObjectQuery(Struct, kw_only=True):
    """What of an object is asked for."""

    tagging: Literal[""] | None = None
    """Its tags instead of its bytes; without a value."""
    versionId: Literal["null"] | None = None  # noqa: N815 - as clients send it
    """Objects have no versions: only `null` means one."""


class ChecksumRecord(ResponseBody):
    """The checksum that was asked for when the object was stored."""

    algorithm: str
    value: str
    type: str
    """`FULL_OBJECT`, or `COMPOSITE` if it is of the checksums of the parts."""


class ListedObject(ResponseBody):
    """An object in a list."""

    key: str
    size: int
    etag: str
    storage_class: str
    checksum: ChecksumRecord | None
    last_modified: RFC3339


class ObjectRecord(ResponseBody):
    """An object."""

    bucket: str
    key: str
    crn: str
    size: int
    etag: str
    content_type: str
    headers: dict[str, str]
    """Headers of the upload that are given back with the object."""
    metadata: dict[str, str]
    tags: dict[str, str]
    storage_class: str
    checksum: ChecksumRecord | None
    last_modified: RFC3339


class OneObject(ResponseBody):
    """An object, wrapped."""

    object: ObjectRecord


class ListMeta(ResponseBody):
    """The metadata of a page of a list that is not counted."""

    limit: int
    has_more: bool
    marker: str | UnsetType = UNSET
    """Where the next page begins; absent on the last one."""


class ManyObjects(ResponseBody):
    """A page of objects; both lists together have at most `limit` rows."""

    objects: Sequence[ListedObject]
    common_prefixes: Sequence[str]
    meta: ListMeta


class Tags(RequestBody):
    """The tags of an object: at most 10."""

    tags: dict[str, str]


class CreateMultipartUpload(RequestBody):
    """What the object is to be that an upload becomes."""

    key: ObjectKey
    content_type: ContentType = DEFAULT_CONTENT_TYPE
    storage_class: StorageClass = "STANDARD"
    metadata: dict[str, str] = field(default_factory=dict)
    """Given back as `x-amz-meta-` headers."""
    tags: dict[str, str] = field(default_factory=dict)


class UploadsQuery(PageQuery):
    """Which uploads to list."""

    prefix: Annotated[str, Meta(max_length=1024)] = ""
    """Only of keys that begin so."""


class MultipartUpload(ResponseBody):
    """A multipart upload."""

    upload_id: Uuid
    bucket: str
    key: str
    content_type: str
    storage_class: str
    metadata: dict[str, str]
    tags: dict[str, str]
    created_at: RFC3339


class OneUpload(ResponseBody):
    """A multipart upload, wrapped."""

    upload: MultipartUpload


class ManyUploads(ResponseBody):
    """A page of multipart uploads that are neither completed nor aborted."""

    uploads: Sequence[MultipartUpload]
    meta: PageMeta


class PartRecord(ResponseBody):
    """A part of an upload."""

    part_number: int
    etag: str
    size: int
    last_modified: RFC3339


class OneUploadPart(ResponseBody):
    """A part, wrapped."""

    part: PartRecord


class ManyParts(ResponseBody):
    """A page of parts, by number."""

    parts: Sequence[PartRecord]
    meta: PageMeta


class PartToComplete(RequestBody):
    """A part of the object, as it was uploaded."""

    part_number: Annotated[int, Meta(ge=1, le=MAX_PARTS)]
    etag: Annotated[str, Meta(max_length=64)]


class CompleteMultipartUpload(RequestBody):
    """The parts of the object, in ascending order; others are deleted."""

    max_parts: ClassVar[int] = 5 * MAX_PARTS + 100

    parts: Annotated[list[PartToComplete], Meta(min_length=1, max_length=MAX_PARTS)]


def bucket_record(
    bucket: Bucket, held: Held, key: KeyRef | UnsetType | None = UNSET
) -> BucketRecord:
    """Return the record of a bucket."""
    return BucketRecord(
        id=bucket.id,
        crn=bucket.crn,
        name=bucket.name,
        region=bucket.region,
        kms_key=reference_to(key) if isinstance(key, KeyRef) else key,
        tags=dict(bucket.tags),
        object_count=held.objects,
        byte_count=held.object_bytes,
        upload_byte_count=held.upload_bytes,
        created_at=rfc3339(bucket.created_at),
    )


def cors_rules(rules: Sequence[CorsRule]) -> CorsRules:
    """Return the record of CORS rules."""
    return CorsRules(
        cors_rules=[
            CorsRuleRecord(
                allowed_origins=list(rule.allowed_origins),
                allowed_methods=list(rule.allowed_methods),  # type: ignore[arg-type] # checked
                allowed_headers=list(rule.allowed_headers),
                expose_headers=list(rule.expose_headers),
                max_age_seconds=rule.max_age_seconds,
            )
            for rule in rules
        ]
    )


def given_rules(data: CorsRules) -> list[CorsRule]:
    """Return the CORS rules of a request."""
    return [
        CorsRule(
            rule.allowed_origins,
            rule.allowed_methods,
            rule.allowed_headers,
            rule.expose_headers,
            rule.max_age_seconds,
        )
        for rule in data.cors_rules
    ]


def listed_object(entry: Entry) -> ListedObject:
    """Return the record of an object in a list."""
    return ListedObject(
        key=entry.key,
        size=entry.size,
        etag=entry.etag,
        storage_class=entry.storage_class,
        checksum=_checksum(entry.checksum),
        last_modified=rfc3339(entry.created_at),
    )


def one_object(bucket: Bucket, crn: str, found: StoredObject) -> OneObject:
    """Return the record of an object, wrapped."""
    facts = found.facts
    return OneObject(
        object=ObjectRecord(
            bucket=bucket.name,
            key=found.key,
            crn=crn,
            size=found.size,
            etag=found.etag,
            content_type=facts.content_type,
            headers=dict(facts.headers),
            metadata=dict(facts.metadata),
            tags=dict(facts.tags),
            storage_class=facts.storage_class,
            checksum=_checksum(found.checksum),
            last_modified=rfc3339(found.created_at),
        )
    )


def upload_record(bucket: Bucket, upload: Upload) -> MultipartUpload:
    """Return the record of an upload."""
    facts = upload.facts
    return MultipartUpload(
        upload_id=upload.id,
        bucket=bucket.name,
        key=upload.key,
        content_type=facts.content_type,
        storage_class=facts.storage_class,
        metadata=dict(facts.metadata),
        tags=dict(facts.tags),
        created_at=rfc3339(upload.created_at),
    )


def part_record(piece: Piece) -> PartRecord:
    """Return the record of a part."""
    return PartRecord(
        part_number=piece.number,
        etag=piece.md5,
        size=piece.stored.size,
        last_modified=rfc3339(piece.created_at),
    )


def _checksum(checksum: Checksum | None) -> ChecksumRecord | None:
    if checksum is None:
        return None
    return ChecksumRecord(algorithm=checksum.algorithm, value=checksum.value, type=checksum.kind)

"""``/v1/buckets/{bucket}/multipart-uploads``: send an object in parts.

The audit log records who began, completed and aborted an upload, but not its parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, ClassVar, Final

from litestar import delete, get, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from msgspec import Meta, field

from cloudcore.db.base import Connection
from cloudcore.resource_names import Uuid
from cloudcore.storage import multipart, object_writes, upload_rows
from cloudcore.storage.bucket import (
    DEFAULT_CONTENT_TYPE,
    MAX_OBJECT_BYTES,
    Bucket,
    StorageClass,
    check_tags,
    checked_metadata,
    key_bytes,
    object_crn,
)
from cloudcore.storage.buckets import authorized_bucket, bucket_crn_of
from cloudcore.storage.errors import InvalidPartNumber, NoSuchBucket, NoSuchUpload
from cloudcore.storage.multipart import MAX_PARTS, Completion, GivenPart
from cloudcore.storage.needs import StorageNeeds
from cloudcore.storage.object_rows import ObjectAttributes, span_of
from cloudcore.storage.object_writes import Terms
from cloudcore.storage.pieces import rows as piece_rows
from cloudcore.storage.pieces.rows import Piece
from cloudcore.storage.routes.buckets import ONE
from cloudcore.storage.routes.objects import OneObject, one_object
from cloudcore.storage.tables import BUCKET_ROWS
from cloudcore.storage.upload_rows import Upload
from cloudcore.web.answers import RecordAnswers
from cloudcore.web.app import Context, Needs
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.pagination import PageMeta, PageQuery
from cloudcore.web.streams import RequestStream
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, rfc3339

UPLOADS: Final = ONE + "/multipart-uploads"
UPLOAD: Final = UPLOADS + "/{upload_id:str}"
PARTS: Final = UPLOAD + "/parts"


ObjectKey = Annotated[str, Meta(min_length=1, max_length=1024)]
ContentType = Annotated[str, Meta(max_length=256, pattern=r"^[ -~]+$(?!\n)")]


class CreateMultipartUpload(RequestBody):
    """The object that the upload becomes."""

    key: ObjectKey
    content_type: ContentType = DEFAULT_CONTENT_TYPE
    storage_class: StorageClass = "STANDARD"
    metadata: dict[str, str] = field(default_factory=dict)
    """Returned as `x-amz-meta-` headers."""
    tags: dict[str, str] = field(default_factory=dict)


class UploadsQuery(PageQuery):
    """Which uploads to list."""

    prefix: Annotated[str, Meta(max_length=1024)] = ""
    """Only uploads to keys that begin with this."""


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


class PartRecord(ResponseBody):
    """A part of an upload."""

    part_number: int
    etag: str
    size: int
    last_modified: RFC3339


class OneUploadPart(ResponseBody):
    """The body of an answer: a part."""

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


def upload_record(bucket: Bucket, upload: Upload) -> MultipartUpload:
    """Convert an upload for a response."""
    attributes = upload.attributes
    return MultipartUpload(
        upload_id=upload.id,
        bucket=bucket.name,
        key=upload.key,
        content_type=attributes.content_type,
        storage_class=attributes.storage_class,
        metadata=dict(attributes.metadata),
        tags=dict(attributes.tags),
        created_at=rfc3339(upload.created_at),
    )


ANSWERS: Final = RecordAnswers(
    MultipartUpload,
    "upload",
    upload_record,
    noun="multipart upload",
    nouns="multipart uploads that are neither completed nor aborted",
    named="Upload",
)


def part_record(piece: Piece) -> PartRecord:
    """Convert a part for a response."""
    return PartRecord(
        part_number=piece.number,
        etag=piece.md5,
        size=piece.stored.size,
        last_modified=rfc3339(piece.created_at),
    )


async def _authorized_upload(
    ctx: RequestContext, name: str, upload_id: str
) -> tuple[Bucket, Upload]:
    """Return an upload, open or completed, and its bucket, after authorizing the operation.

    The operation is authorized on the upload's object; for an unknown upload, on all keys.

    Raise `AccessDenied` if policies refuse it, whether or not the upload exists; `NoSuchBucket` or
    `NoSuchUpload` if it does not.
    """
    assert ctx.action is not None
    crn, account_id, authorize = bucket_crn_of(ctx, name), account_of(ctx), ctx.right_to(ctx.action)

    def find(tx: Connection) -> tuple[Bucket | None, Upload | None]:
        bucket = BUCKET_ROWS.find_named(tx, account_id, ctx.settings.region, name)
        if bucket is None:
            return None, None
        return bucket, upload_rows.find_upload(tx, account_id, bucket.id, upload_id)

    bucket, upload = await ctx.database.read(find)
    authorize(f"{crn}/*" if upload is None else object_crn(crn, upload.key))
    if bucket is None:
        raise NoSuchBucket
    if upload is None:
        raise NoSuchUpload
    return bucket, upload


@ANSWERS.creates(UPLOADS, "storage:PutObject")
async def create_multipart_upload(
    bucket: FromPath[str],
    data: JSONBody[CreateMultipartUpload],
    ctx: Context,
    needs: Needs[StorageNeeds],
) -> Reply[ResponseBody]:
    """Begin to send an object in parts. One that is not completed in 7 days is aborted.

    It is refused while the bucket's KMS key is disabled (403), or if it was deleted (404).
    """
    key_bytes(data.key)
    found = await authorized_bucket(ctx, bucket, data.key)
    check_tags(data.tags)
    metadata = checked_metadata(data.metadata)
    upload = Upload(
        ctx.new_id(),
        found.id,
        found.account_id,
        data.key,
        ObjectAttributes(data.content_type, {}, metadata, data.tags, data.storage_class),
        None,
        None,
        ctx.clock(),
    )
    return await ctx.commit(
        multipart.create_upload,
        found,
        upload,
        needs.bytes,
        wrap=partial(ANSWERS.one, found),
        location=lambda made: f"/v1/buckets/{found.name}/multipart-uploads/{made.id}",
    )


@ANSWERS.lists(UPLOADS, "storage:ListMultipartUploads", UploadsQuery)
async def list_multipart_uploads(bucket: FromPath[str], ctx: Context) -> ResponseBody:
    """List the uploads that are neither completed nor aborted, by key and age."""
    found, query = await authorized_bucket(ctx, bucket), ctx.query(UploadsQuery)
    pager = ctx.pager(query, found.id)
    key, upload_id = pager.position or ("", "")
    of = found.account_id, found.id, span_of(query.prefix)
    uploads = await ctx.database.read(
        upload_rows.list_uploads, *of, (key.encode(), upload_id), pager.wanted
    )
    total = await ctx.database.read(upload_rows.count_uploads, *of)
    page, meta = pager.cut(uploads, total, lambda each: (each.key, each.id))
    return ANSWERS.many([upload_record(found, each) for each in page], meta)


@ANSWERS.gets(UPLOAD, "storage:ListParts")
async def get_multipart_upload(
    bucket: FromPath[str], upload_id: FromPath[str], ctx: Context
) -> ResponseBody:
    """Return an upload that is neither completed nor aborted."""
    found, upload = await _authorized_upload(ctx, bucket, upload_id)
    return ANSWERS.one(found, multipart.checked_open(upload))


@get(PARTS, opt={"action": "storage:ListParts", "query": PageQuery})
async def list_parts(bucket: FromPath[str], upload_id: FromPath[str], ctx: Context) -> ManyParts:
    """List the parts of an upload by number."""
    found, upload = await _authorized_upload(ctx, bucket, upload_id)
    query = ctx.query(PageQuery)
    pager = ctx.pager(query, upload.id)
    (after,) = pager.position or (0,)
    parts = await ctx.database.read(multipart.list_parts, found, upload.id, after, pager.wanted)
    total = await ctx.database.read(piece_rows.count_parts, upload.account_id, upload.id)
    page, meta = pager.cut(parts, total, lambda each: (each.number,))
    return ManyParts(parts=[part_record(each) for each in page], meta=meta)


@put(
    PARTS + "/{part_number:str}",
    status_code=200,
    opt={
        "action": "storage:PutObject",
        "takes_stream": True,
        "max_stream_bytes": MAX_OBJECT_BYTES,
    },
)
async def upload_part(
    bucket: FromPath[str],
    upload_id: FromPath[str],
    part_number: FromPath[str],
    stream: NamedDependency[RequestStream],
    ctx: Context,
    needs: Needs[StorageNeeds],
) -> OneUploadPart:
    """Store the body as a part, numbered from 1 to 10,000; it replaces a part with the same number.

    Each part but the last needs at least 5 MiB; this is checked when the upload is completed.
    """
    found, upload = await _authorized_upload(ctx, bucket, upload_id)
    if not (part_number.isascii() and part_number.isdigit() and len(part_number) <= 5):
        raise InvalidPartNumber
    piece = await object_writes.store_part(
        needs,
        found,
        upload.id,
        int(part_number),
        stream.receive_into,
        Terms(declared=stream.length),
    )
    return OneUploadPart(part=part_record(piece))


@post(UPLOAD + "/complete", status_code=200, opt={"action": "storage:PutObject"})
async def complete_multipart_upload(
    bucket: FromPath[str],
    upload_id: FromPath[str],
    data: JSONBody[CompleteMultipartUpload],
    ctx: Context,
    needs: Needs[StorageNeeds],
) -> Reply[OneObject]:
    """Make the object of the listed parts; it replaces the existing object.

    If this fails, the upload is unchanged. A repetition with the same parts gets the same answer.
    """
    found, upload = await _authorized_upload(ctx, bucket, upload_id)
    parts = [GivenPart(each.part_number, each.etag) for each in data.parts]
    completion = Completion(upload.id, parts, ctx.new_id())
    return await ctx.commit(
        multipart.complete_upload,
        found,
        completion,
        ctx.clock(),
        needs.events.by(ctx.caller),
        wrap=lambda made: one_object(found, made),
    )


@delete(UPLOAD, status_code=204, opt={"action": "storage:AbortMultipartUpload"})
async def abort_multipart_upload(
    bucket: FromPath[str], upload_id: FromPath[str], ctx: Context
) -> None:
    """Delete an upload and its parts."""
    found, upload = await _authorized_upload(ctx, bucket, upload_id)
    await ctx.database.write(multipart.abort_upload, found, upload.id, ctx.clock())

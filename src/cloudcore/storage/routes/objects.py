"""``/v1/buckets/{bucket}/objects``: objects and their tags.

There are too many operations on objects to record each: the audit log has only the refused ones.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final, Literal

import msgspec
from litestar import Request, delete, get, put
from litestar.di import NamedDependency
from litestar.params import FromPath
from msgspec import UNSET, Meta, Struct, UnsetType

from cloudcore.errors import InvalidInput, PayloadTooLarge
from cloudcore.storage import object_reads, object_writes, objects
from cloudcore.storage.bucket import MAX_OBJECT_BYTES, Bucket, key_bytes, object_crn
from cloudcore.storage.buckets import authorized_bucket
from cloudcore.storage.conditions import RequestConditions, parse_range
from cloudcore.storage.errors import NoSuchKey
from cloudcore.storage.needs import StorageNeeds
from cloudcore.storage.object_reads import FoundObject
from cloudcore.storage.object_rows import ObjectChecksum, StoredObject, list_page
from cloudcore.storage.object_writes import Terms
from cloudcore.storage.routes.buckets import ONE
from cloudcore.storage.s3 import object_headers
from cloudcore.web.app import Context, Needs
from cloudcore.web.context import RequestContext
from cloudcore.web.pagination import PageQuery
from cloudcore.web.request_state import request_state_of
from cloudcore.web.streams import RequestStream, StreamReply
from cloudcore.web.strict_json import decode
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, rfc3339

OBJECTS: Final = ONE + "/objects"
OBJECT: Final = OBJECTS + "/{key:str}"
_MAX_TAGS_BYTES: Final = 64 * 1024
_JSON: Final = (b"content-type", b"application/json")
_UNCHECKED: Final = ("if-unmodified-since", "content-md5")
_UNTRUSTED: Final = (
    # The bytes are a user's: a browser that shows them must not take them for this site's pages.
    (b"content-security-policy", b"sandbox; default-src 'none'"),
    (b"x-content-type-options", b"nosniff"),
)

AnyRequest = Request[Any, Any, Any]


class ObjectsQuery(PageQuery):
    """Which objects to list."""

    prefix: Annotated[str, Meta(max_length=1024)] = ""
    """Only keys that begin with this."""
    delimiter: Annotated[str, Meta(max_length=64)] = ""
    """Keys that contain this after the prefix are listed as one common prefix, up to it."""


class ObjectQuery(Struct, kw_only=True):
    """Whether the object or its tags are requested."""

    tagging: Literal[""] | None = None
    """Request the object's tags instead of its bytes; the parameter has no value."""
    versionId: Literal["null"] | None = None  # noqa: N815 - as clients send it
    """Only `null`: objects have no versions."""


class ChecksumRecord(ResponseBody):
    """The checksum that the client requested when it stored the object."""

    algorithm: str
    value: str
    type: str
    """`FULL_OBJECT`, or `COMPOSITE` if it covers the checksums of the parts."""


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
    """Headers of the upload that are returned with the object."""
    metadata: dict[str, str]
    tags: dict[str, str]
    storage_class: str
    checksum: ChecksumRecord | None
    last_modified: RFC3339


class OneObject(ResponseBody):
    """The body of an answer: an object."""

    object: ObjectRecord


class ListMeta(ResponseBody):
    """The metadata of a page of a list without a total."""

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


def one_object(bucket: Bucket, found: StoredObject) -> OneObject:
    """Convert an object for a response."""
    return OneObject(
        object=ObjectRecord(
            bucket=bucket.name,
            key=found.key,
            crn=object_crn(bucket.crn, found.key),
            size=found.size,
            etag=found.etag,
            **found.attributes._asdict(),
            checksum=_checksum(found.checksum),
            last_modified=rfc3339(found.created_at),
        )
    )


def _checksum(checksum: ObjectChecksum | None) -> ChecksumRecord | None:
    if checksum is None:
        return None
    return ChecksumRecord(algorithm=checksum.algorithm, value=checksum.value, type=checksum.kind)


async def _bucket_of(ctx: RequestContext, name: str, key: str) -> Bucket:
    """Return a bucket after authorizing the operation on its object with this key."""
    key_bytes(key)
    return await authorized_bucket(ctx, name, key)


@get(OBJECTS, opt={"action": "storage:ListObjects", "query": ObjectsQuery})
async def list_objects(bucket: FromPath[str], ctx: Context) -> ManyObjects:
    """List objects, sorted by the bytes of their keys.

    The list has no total. `marker` is that of the previous page.
    """
    found, query = await authorized_bucket(ctx, bucket), ctx.query(ObjectsQuery)
    pager = ctx.pager(query, found.id)
    (after,) = pager.position or ("",)
    page = await ctx.database.read(
        list_page, found, query.prefix, query.delimiter, after, query.limit
    )
    meta = ListMeta(limit=query.limit, has_more=page.next_after is not None)
    if page.next_after is not None:
        meta.marker = pager.marker((page.next_after,))
    return ManyObjects(
        objects=[
            ListedObject(
                key=each.key,
                size=each.size,
                etag=each.etag,
                storage_class=each.storage_class,
                checksum=_checksum(each.checksum),
                last_modified=rfc3339(each.created_at),
            )
            for each in page.entries
        ],
        common_prefixes=page.prefixes,
        meta=meta,
    )


@get(
    OBJECT,
    opt={
        "action": "storage:GetObject",
        "tail": "key",
        "query": ObjectQuery,
        "entity_tag": True,
        "conditional": True,
        "statuses": (206, 416),
        "media_types": ("*/*",),
    },
)
async def get_object(
    bucket: FromPath[str],
    key: FromPath[str],
    ctx: Context,
    needs: Needs[StorageNeeds],
    request: AnyRequest,
) -> StreamReply:
    """Return the bytes of an object, or with `?tagging` its tags as JSON.

    `Range` selects a part of the bytes. The headers describe the object: `ETag`, `Last-Modified`,
    those that it was uploaded with, and its metadata as `x-amz-meta-`.
    """
    found_in = await _bucket_of(ctx, bucket, key)
    if ctx.query(ObjectQuery).tagging is not None:
        found = await ctx.database.read(objects.find_object, found_in, key)
        body = msgspec.json.encode(Tags(tags=dict(found.attributes.tags)))
        return StreamReply(_whole(body), headers=[_JSON], length=len(body))
    headers, is_head = _headers(request), request_state_of(request.scope).is_head
    asked = await object_reads.find_object(
        needs,
        found_in,
        key,
        object_headers.read_conditions(headers),
        partial(parse_range, headers.get("range")),
        is_head=is_head,
    )
    return await _reply(needs, asked, is_head=is_head)


@put(
    OBJECT,
    status_code=200,
    opt={
        "action": "storage:PutObject",
        "tail": "key",
        "query": ObjectQuery,
        "conditional": True,
        "takes_stream": True,
        "max_stream_bytes": MAX_OBJECT_BYTES,
    },
)
async def put_object(
    bucket: FromPath[str],
    key: FromPath[str],
    stream: NamedDependency[RequestStream],
    ctx: Context,
    needs: Needs[StorageNeeds],
    request: AnyRequest,
) -> OneObject:
    """Store the body as an object, replacing the existing one; with `?tagging`, as its tags.

    The headers `Content-Type`, `Content-Encoding`, `Content-Disposition`, `Content-Language`,
    `Cache-Control`, `Expires`, `x-amz-meta-`, `x-amz-tagging` and `x-amz-storage-class` are stored
    with it. `If-Match` and `If-None-Match: *` are decided when the object is stored.
    """
    found_in = await _bucket_of(ctx, bucket, key)
    if ctx.query(ObjectQuery).tagging is not None:
        tags = decode(await _few_bytes(stream), Tags).tags
        tagged = await needs.database.write(objects.put_tags, found_in, key, tags)
        return one_object(found_in, tagged)
    headers = _headers(request)
    conditions = _write_conditions(headers)
    attributes = object_headers.read_attributes(headers, found_in.account_id)
    made = await object_writes.store_object(
        needs,
        needs.events.by(ctx.caller),
        found_in,
        key,
        attributes,
        stream.receive_into,
        Terms(declared=stream.length),
        conditions,
    )
    return one_object(found_in, made)


@delete(
    OBJECT,
    status_code=204,
    opt={
        "action": "storage:DeleteObject",
        "tail": "key",
        "query": ObjectQuery,
        "conditional": True,
    },
)
async def delete_object(
    bucket: FromPath[str],
    key: FromPath[str],
    ctx: Context,
    needs: Needs[StorageNeeds],
    request: AnyRequest,
) -> None:
    """Delete an object, or with `?tagging` its tags."""
    found_in = await _bucket_of(ctx, bucket, key)
    if ctx.query(ObjectQuery).tagging is not None:
        await needs.database.write(objects.put_tags, found_in, key, {})
        return
    deleted = await needs.database.write(
        objects.delete_object,
        found_in,
        key,
        ctx.clock(),
        needs.events.by(ctx.caller),
        _write_conditions(_headers(request)),
    )
    if deleted is None:
        raise NoSuchKey


async def _reply(needs: StorageNeeds, asked: FoundObject, *, is_head: bool) -> StreamReply:
    found = asked.object
    if asked.outcome == "not_modified":
        return StreamReply(
            _whole(b""), status=304, headers=_encoded(object_headers.identity_headers(found))
        )
    length = asked.stop - asked.start
    fields = [*object_headers.object_fields(found), *object_headers.checksum_fields(found.checksum)]
    headers = [*_encoded(fields), *_UNTRUSTED]
    status = 206 if asked.is_range else 200
    if asked.is_range:
        span = b"bytes %d-%d/%d" % (asked.start, asked.stop - 1, found.size)
        headers.append((b"content-range", span))
    if is_head:
        return StreamReply(_whole(b""), status=status, headers=headers, length=length)
    opened = await object_reads.open_to_send(needs, asked)
    region = opened.file_region()
    if region is not None:
        return StreamReply(region, status=status, headers=headers, close=opened.aclose)
    return StreamReply(
        object_reads.parts_of(opened),
        status=status,
        headers=headers,
        length=length,
        close=opened.aclose,
        bulk=opened.chunks,
    )


async def _whole(body: bytes) -> AsyncGenerator[bytes, None]:
    if body:
        yield body


async def _few_bytes(stream: RequestStream) -> bytes:
    """Return the body; raise `PayloadTooLarge` if it is longer than `_MAX_TAGS_BYTES`."""
    found = bytearray()
    async for part in stream:
        found += part
        if len(found) > _MAX_TAGS_BYTES:
            raise PayloadTooLarge(f"the body is longer than {_MAX_TAGS_BYTES} bytes")
    return bytes(found)


def _write_conditions(headers: Mapping[str, str]) -> RequestConditions:
    """Return the conditions of a write.

    Raise `InvalidInput` for a header with a condition or checksum that is not supported.
    """
    for name in headers:
        if name in _UNCHECKED or name.startswith("x-amz-checksum-"):
            raise InvalidInput(f"the header {name} is not supported here", header=name)
    return object_headers.read_conditions(headers)._replace(modified_since=None)


def _headers(request: AnyRequest) -> dict[str, str]:
    """Map lower-case header names to values; join repeated headers."""
    found: dict[str, str] = {}
    for name, value in request.scope["headers"]:
        text, other = name.decode("latin-1").lower(), value.decode("latin-1")
        found[text] = f"{found[text]},{other}" if text in found else other
    return found


def _encoded(fields: list[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields]

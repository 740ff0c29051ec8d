"""Read, write, copy, tag and delete objects."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import aclosing
from functools import partial
from typing import Final

from cloudcore.errors import AccessDenied
from cloudcore.iam.decision import DECISION_STEPS
from cloudcore.iam.patterns import StepBudget
from cloudcore.storage import buckets, object_reads, object_writes, objects
from cloudcore.storage.bucket import key_bytes, object_crn
from cloudcore.storage.conditions import parse_range
from cloudcore.storage.errors import KeyTooLong
from cloudcore.storage.multipart import MAX_PARTS
from cloudcore.storage.object_reads import FoundObject
from cloudcore.storage.object_rows import StoredObject
from cloudcore.storage.object_writes import Terms
from cloudcore.storage.pieces import rows as piece_rows
from cloudcore.storage.pieces.rows import ListedPiece
from cloudcore.storage.s3 import documents, object_headers, payloads
from cloudcore.storage.s3.answers import (
    Answer,
    Fields,
    checksum_texts,
    empty,
    is_streamed,
    iso_time,
    quoted,
    s3_error,
    tag,
    tagging,
    text,
    xml,
)
from cloudcore.storage.s3.call import (
    MAX_LISTED,
    S3Call,
    check_read,
    encryption_headers,
    sealed_headers,
)
from cloudcore.storage.s3.errors import S3Error
from cloudcore.storage.s3.requests import read_copy_source

_DELETION_STEPS: Final = 1_000_000_000
"""Maximum steps for all decisions of one DeleteObjects, 0.4 s (`patterns.StepBudget`)."""
_OVERRIDES: Final = (
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
)
_PRINTABLE: Final = re.compile(r"[\x20-\x7e\xa0-\xff]*")


async def get_object(call: S3Call) -> Answer:
    """GetObject and HeadObject: the bytes of an object, of a range, or of a part."""
    check_read(call)
    part_number = call.number("partNumber", 1, MAX_PARTS)
    range_header = call.header("range")
    if part_number is not None and range_header is not None:
        raise S3Error("InvalidRequest", "Cannot specify both Range header and partNumber.")
    found = await object_reads.find_object(
        call.needs,
        call.bucket,
        call.request.key,
        object_headers.read_conditions(call.request.headers),
        partial(parse_range, range_header),
        part_number,
        is_head=call.request.method == "HEAD",
    )
    if found.outcome == "not_modified":
        return Answer(304, object_headers.identity_headers(found.object))
    fields = [*_fields(call, found), *await _encryption(call, found)]
    status = 206 if found.is_range else 200
    if call.request.method == "HEAD":
        return Answer(status, fields)
    opened = await object_reads.open_to_send(call.needs, found)
    parts = await object_reads.begin(opened) if is_streamed(call.scope, opened) else None
    return Answer(status, fields, opened, parts)


async def _encryption(call: S3Call, found: FoundObject) -> Fields:
    """Return the response headers about an object's encryption; empty if it is not sealed."""
    if not call.needs.bytes.seals:
        return []
    if found.pieces:
        are_sealed = all(piece.wrapped is not None for piece in found.pieces)
    else:
        of = found.object.account_id, found.object.id
        are_sealed = await call.needs.database.read(piece_rows.are_sealed, *of)
    return sealed_headers(call.bucket) if are_sealed else []


def _fields(call: S3Call, found: FoundObject) -> list[tuple[str, str]]:
    fields = dict(object_headers.object_fields(found.object))
    for name in _OVERRIDES:
        override = call.request.fields.get(f"response-{name}")
        if override is None:
            continue
        if not _PRINTABLE.fullmatch(override):
            raise S3Error("InvalidArgument", f"response-{name} cannot be a header.")
        fields[name] = override
    fields["content-length"] = str(found.stop - found.start)
    if found.is_range:
        size = found.object.size
        fields["content-range"] = f"bytes {found.start}-{found.stop - 1}/{size}"
    if (call.header("x-amz-checksum-mode") or "").upper() == "ENABLED":
        if found.part is not None:
            fields |= object_headers.checksum_fields(found.part.checksum)
        elif not found.is_range:
            fields |= object_headers.checksum_fields(found.object.checksum)
    if found.part is not None and found.object.has_parts:
        fields["x-amz-mp-parts-count"] = str(found.part.total)
    return list(fields.items())


async def get_object_attributes(call: S3Call) -> Answer:
    """GetObjectAttributes: the attributes of HeadObject, and the parts, as a document."""
    found, pieces = await call.needs.database.read(
        object_reads.list_parts, call.bucket, call.request.key
    )
    asked = [each.strip() for each in (call.header("x-amz-object-attributes") or "").split(",")]
    content = {
        "ETag": text("ETag", found.etag),
        "ObjectSize": text("ObjectSize", found.size),
        "StorageClass": text("StorageClass", found.attributes.storage_class),
        "Checksum": "",
        "ObjectParts": "",
    }
    if found.checksum is not None:
        content["Checksum"] = tag("Checksum", *checksum_texts(found.checksum))
    if found.has_parts:
        content["ObjectParts"] = _parts_text(call, found, pieces)
    if not asked or any(name not in content for name in asked):
        raise S3Error("InvalidArgument", "x-amz-object-attributes names no attribute.")
    answer = [content[name] for name in content if name in asked]
    return xml("GetObjectAttributesResponse", answer, object_headers.identity_headers(found)[1:])


def _parts_text(call: S3Call, found: StoredObject, pieces: Sequence[ListedPiece]) -> str:
    """Return the XML of a page of parts, which are numbered from 1 without gaps."""
    after = call.header_number("x-amz-part-number-marker") or 0
    asked = call.header_number("x-amz-max-parts")
    limit = MAX_LISTED if asked is None else min(asked, MAX_LISTED)
    page = pieces[after : after + limit]
    is_truncated = limit > 0 and after + limit < len(pieces)
    described = [
        text("PartsCount", len(pieces)),
        text("PartNumberMarker", after),
        text("MaxParts", limit),
        text("IsTruncated", is_truncated),
    ]
    if is_truncated:
        described.append(text("NextPartNumberMarker", after + limit))
    for number, piece in enumerate(page, after + 1):
        shown = checksum_texts(piece.checksum_of(found))[:1]
        described.append(tag("Part", text("PartNumber", number), text("Size", piece.size), *shown))
    return tag("ObjectParts", *described)


async def put_object(call: S3Call) -> Answer:
    """PutObject: store the body; it replaces the existing object."""
    body, headers = payloads.S3Body(call), call.request.headers
    conditions = object_headers.read_conditions(headers)
    if conditions.modified_since is not None or conditions.unmodified_since is not None:
        raise S3Error("NotImplemented", "A write is conditional on If-Match or If-None-Match.")
    attributes = object_headers.read_attributes(headers, call.bucket.account_id)
    encryption = encryption_headers(call)
    stored = await object_writes.store_object(
        call.needs,
        call.events,
        call.bucket,
        call.request.key,
        attributes,
        body,
        body.terms(),
        conditions,
    )
    fields = [
        ("etag", quoted(stored.etag)),
        *object_headers.checksum_fields(stored.checksum),
        *encryption,
    ]
    return empty(200, fields)


async def copy_object(call: S3Call) -> Answer:
    """CopyObject: store the bytes of another object, with its attributes or new ones."""
    headers = call.request.headers
    source_name, source_key = read_copy_source(headers["x-amz-copy-source"])
    bucket = await call.find_bucket()
    source = await buckets.authorized_bucket(call.ctx, source_name, source_key, "storage:GetObject")
    object_headers.check_supported(headers, bucket.account_id)
    encryption = encryption_headers(call)
    payloads.refuse_checksum(call)
    replaces = _directive(headers.get("x-amz-metadata-directive", "COPY"))
    replaces_tags = _directive(headers.get("x-amz-tagging-directive", "COPY"))
    same = (source.id, source_key) == (bucket.id, call.request.key)
    if same and not replaces and not replaces_tags and "x-amz-storage-class" not in headers:
        raise S3Error(
            "InvalidRequest",
            "This copy request is illegal because it is trying to copy an object to itself without"
            " changing the object's metadata, storage class or tags.",
        )
    found = await object_reads.find_object(
        call.needs,
        source,
        source_key,
        object_headers.read_conditions(headers, "x-amz-copy-source-"),
        is_copy=True,
    )
    given = object_headers.read_attributes(
        {name: each for name, each in headers.items() if name != "x-amz-tagging"}, bucket.account_id
    )
    attributes = found.object.attributes._replace(storage_class=given.storage_class)
    if replaces:
        attributes = given._replace(tags=attributes.tags)
    if replaces_tags:
        attributes = attributes._replace(
            tags=object_headers.read_tagging(headers.get("x-amz-tagging", ""))
        )
    before = found.object.checksum
    named = headers.get("x-amz-checksum-algorithm", None if before is None else before.algorithm)
    algorithm = None if named is None else payloads.read_algorithm(named)
    async with aclosing(await object_reads.open_object(call.needs, found)) as opened:
        made = await object_writes.store_object(
            call.needs,
            call.events,
            bucket,
            call.request.key,
            attributes,
            object_writes.copy_of(opened),
            Terms(found.object.size, algorithm),
            object_headers.read_conditions(headers),
        )
    return xml("CopyObjectResult", copied(made), encryption)


def copied(made: StoredObject) -> list[str]:
    """Return the XML elements in the answer to a copy."""
    content = [text("LastModified", iso_time(made.created_at)), text("ETag", quoted(made.etag))]
    return content + checksum_texts(made.checksum)


def _directive(value: str) -> bool:
    """Return True if a directive replaces the copied values with those in the request."""
    if value.upper() not in ("COPY", "REPLACE"):
        raise S3Error("InvalidArgument", "A directive is COPY or REPLACE.")
    return value.upper() == "REPLACE"


async def delete_object(call: S3Call) -> Answer:
    """DeleteObject: 204, even if there is no such object."""
    conditions = object_headers.read_conditions(call.request.headers)
    if any(name.startswith("x-amz-if-match-") for name in call.request.headers):
        raise S3Error("NotImplemented", "A deletion is conditional on If-Match.")
    await call.needs.database.write(
        objects.delete_object, call.bucket, call.request.key, call.now, call.events, conditions
    )
    return empty(204)


async def delete_objects(call: S3Call) -> Answer:
    """DeleteObjects: up to 1,000 keys, each authorized separately, with its own error.

    A caller who may delete none of the keys does not learn whether the bucket exists. The policy
    decisions share `_DELETION_STEPS`; keys for which no steps are left are refused.
    """
    crn = buckets.bucket_crn_of(call.ctx, call.request.bucket)
    asked = await payloads.read_large(call, documents.expect_deletion())
    refused: dict[str, S3Error] = {}
    allowed: list[str] = []
    assert call.ctx.caller is not None
    steps = _DELETION_STEPS
    for key in asked.keys:
        most = min(steps, DECISION_STEPS)
        work = StepBudget(most)
        steps -= most
        try:
            call.ctx.authorize(object_crn(crn, key), work=work)
            key_bytes(key)
        except AccessDenied as error:
            call.ctx.note_refusal_of(call.ctx.caller)
            is_used_up = work.left < 0 and most < DECISION_STEPS
            hint = ", or delete fewer objects at once" if is_used_up else ""
            refused[key] = s3_error(AccessDenied(error.message + hint))
        except KeyTooLong as error:
            refused[key] = s3_error(error)
        else:
            allowed.append(key)
        steps += max(work.left, 0)
        await asyncio.sleep(0)  # a decision may take milliseconds; let other requests run
    if allowed:
        bucket = await buckets.bucket_of_caller(call.ctx, call.request.bucket)
        stayed = await call.needs.database.write(
            objects.delete_objects, bucket, allowed, call.now, call.events, asked.etags
        )
        refused |= {key: s3_error(error) for key, error in stayed.items()}
    content = [
        tag("Error", text("Key", key), text("Code", error.code), text("Message", error.message))
        for key, error in refused.items()
    ]
    if not asked.quiet:
        content += [tag("Deleted", text("Key", key)) for key in allowed if key not in refused]
    return xml("DeleteResult", content)


async def get_object_tagging(call: S3Call) -> Answer:
    """GetObjectTagging: the tags of an object, possibly an empty list."""
    found = await call.needs.database.read(objects.find_object, call.bucket, call.request.key)
    return tagging(found.attributes.tags)


async def put_object_tagging(call: S3Call) -> Answer:
    """PutObjectTagging: replace the tags of an object."""
    tags = documents.read_tags(await payloads.read_document(call))
    await call.needs.database.write(objects.put_tags, call.bucket, call.request.key, tags)
    return empty()


async def delete_object_tagging(call: S3Call) -> Answer:
    """DeleteObjectTagging: delete all tags of an object."""
    await call.needs.database.write(objects.put_tags, call.bucket, call.request.key, {})
    return empty(204)


async def refuse_lock(call: S3Call) -> Answer:
    """GetObjectLegalHold, PutObjectRetention and similar: refused, as buckets have no locks."""
    await call.needs.database.read(objects.find_object, call.bucket, call.request.key)
    raise S3Error("InvalidRequest", "Bucket is missing Object Lock Configuration")


async def get_object_acl(call: S3Call) -> Answer:
    """GetObjectAcl: the owner has full control; policies decide about others."""
    await call.needs.database.read(objects.find_object, call.bucket, call.request.key)
    return private_acl(call.bucket.account_id)


async def put_object_acl(call: S3Call) -> Answer:
    """PutObjectAcl: accept only full control for the owner, which changes nothing."""
    await payloads.check_acl(call)
    await call.needs.database.read(objects.find_object, call.bucket, call.request.key)
    return empty()


def private_acl(account_id: str) -> Answer:
    """Return the answer with the access control list that grants only the owner full control."""
    kind = 'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="CanonicalUser"'
    owner = text("ID", account_id) + text("DisplayName", account_id)
    grant = tag("Grant", f"<Grantee {kind}>{owner}</Grantee>", text("Permission", "FULL_CONTROL"))
    return xml("AccessControlPolicy", [tag("Owner", owner), tag("AccessControlList", grant)])

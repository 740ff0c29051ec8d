"""Multipart uploads: begin, send or copy parts, list, complete, abort."""

from __future__ import annotations

import re
from contextlib import aclosing
from functools import partial
from typing import Final

from cloudcore.resource_names import parse_uuid
from cloudcore.storage import buckets, multipart, object_reads, object_writes, upload_rows
from cloudcore.storage.checksums import Algorithm, ChecksumType
from cloudcore.storage.conditions import MAX_DIGITS
from cloudcore.storage.errors import InvalidRange
from cloudcore.storage.multipart import MAX_PARTS, Completion
from cloudcore.storage.object_rows import ObjectChecksum, span_of
from cloudcore.storage.object_writes import Terms
from cloudcore.storage.pieces.rows import Piece
from cloudcore.storage.s3 import documents, payloads
from cloudcore.storage.s3.answers import (
    Answer,
    Fields,
    checksum_texts,
    empty,
    iso_time,
    quoted,
    tag,
    text,
    xml,
)
from cloudcore.storage.s3.call import MAX_NUMBER, S3Call, encryption_headers
from cloudcore.storage.s3.errors import S3Error
from cloudcore.storage.s3.list_calls import encoding, owner
from cloudcore.storage.s3.object_headers import checksum_fields, read_attributes, read_conditions
from cloudcore.storage.s3.requests import read_copy_source
from cloudcore.storage.upload_rows import Upload

_COPIED_RANGE: Final = re.compile(rf"bytes=([0-9]{{1,{MAX_DIGITS}}})-([0-9]{{1,{MAX_DIGITS}}})")
_DEFAULT_KIND: Final[dict[Algorithm, ChecksumType]] = {
    Algorithm.CRC32: "COMPOSITE",
    Algorithm.CRC32C: "COMPOSITE",
    Algorithm.CRC64NVME: "FULL_OBJECT",
    Algorithm.SHA1: "COMPOSITE",
    Algorithm.SHA256: "COMPOSITE",
}


async def create_upload(call: S3Call) -> Answer:
    """CreateMultipartUpload; a body is verified, but otherwise ignored."""
    await payloads.read_document(call)
    attributes = read_attributes(call.request.headers, call.bucket.account_id)
    encryption = encryption_headers(call)
    algorithm, kind = _checksum(call)
    upload = Upload(
        id=call.ctx.new_id(),
        bucket_id=call.bucket.id,
        account_id=call.bucket.account_id,
        key=call.request.key,
        attributes=attributes,
        checksum_algorithm=algorithm,
        checksum_type=kind,
        created_at=call.now,
    )
    store = call.needs.bytes
    await call.change(multipart.create_upload, call.bucket, upload, store, upload_id=upload.id)
    fields: Fields = []
    if algorithm is not None and kind is not None:
        fields = [("x-amz-checksum-algorithm", algorithm), ("x-amz-checksum-type", kind)]
    content = [*_named(call), text("UploadId", upload.id)]
    return xml("InitiateMultipartUploadResult", content, [*fields, *encryption])


def _checksum(call: S3Call) -> tuple[str | None, ChecksumType | None]:
    named = call.header("x-amz-checksum-algorithm")
    kind = (call.header("x-amz-checksum-type") or "").upper()
    if named is None:
        if kind:
            raise S3Error("InvalidRequest", "The x-amz-checksum-type needs an algorithm.")
        return None, None
    algorithm = payloads.read_algorithm(named)
    if not kind:
        return algorithm.value, _DEFAULT_KIND[algorithm]
    if kind == "FULL_OBJECT" and algorithm.is_crc:
        return algorithm.value, "FULL_OBJECT"
    if kind == "COMPOSITE" and algorithm is not Algorithm.CRC64NVME:
        return algorithm.value, "COMPOSITE"
    raise S3Error(
        "InvalidRequest", f"The {kind} checksum type cannot be used with {algorithm.value}."
    )


async def upload_part(call: S3Call) -> Answer:
    """UploadPart: store the body; it replaces a part with the same number."""
    upload = await _find_upload(call)
    encryption = encryption_headers(call)
    body = payloads.S3Body(call)
    promise = body.promise
    sent = promise.algorithm if promise.checksum or promise.trailer else None
    if sent is not None and upload.checksum_algorithm not in (None, sent.value):
        raise S3Error(
            "InvalidRequest",
            f"The checksums of the parts of this upload are {upload.checksum_algorithm}; that of"
            f" this part is {sent.value}.",
        )
    piece = await object_writes.store_part(
        call.needs, call.bucket, upload.id, _part_number(call), body, body.terms()
    )
    fields = [("etag", quoted(piece.md5)), *checksum_fields(_part_checksum(upload, piece))[:1]]
    return empty(200, [*fields, *encryption])


async def copy_part(call: S3Call) -> Answer:
    """UploadPartCopy: make a part from the bytes of an object, or of a range of it."""
    headers = call.request.headers
    source_name, source_key = read_copy_source(headers["x-amz-copy-source"])
    payloads.refuse_checksum(call)
    bucket = await call.find_bucket()
    source = await buckets.authorized_bucket(call.ctx, source_name, source_key, "storage:GetObject")
    encryption = encryption_headers(call)
    upload = await _find_upload(call)
    number = _part_number(call)
    found = await object_reads.find_object(
        call.needs,
        source,
        source_key,
        read_conditions(headers, "x-amz-copy-source-"),
        partial(_copied_range, headers.get("x-amz-copy-source-range")),
        is_copy=True,
    )
    async with aclosing(await object_reads.open_object(call.needs, found)) as opened:
        terms, body = Terms(found.stop - found.start), object_writes.copy_of(opened)
        piece = await object_writes.store_part(call.needs, bucket, upload.id, number, body, terms)
    content = [text("LastModified", iso_time(piece.created_at)), text("ETag", quoted(piece.md5))]
    content += checksum_texts(_part_checksum(upload, piece))[:1]
    return xml("CopyPartResult", content, encryption)


def _copied_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return ``(start, stop)`` to copy, with `stop` excluded, or None for all bytes.

    Raise `S3Error` or `InvalidRange` for a range that a download would ignore or cut off.
    """
    if header is None:
        return None
    found = _COPIED_RANGE.fullmatch(header.strip().lower())
    if found is None or int(found[1]) > int(found[2]):
        raise S3Error(
            "InvalidArgument",
            "The x-amz-copy-source-range value must be of the form bytes=first-last where first and"
            " last are the zero-based offsets of the first and last bytes to copy",
        )
    if int(found[2]) >= size:
        raise InvalidRange(size)
    return int(found[1]), int(found[2]) + 1


async def list_parts(call: S3Call) -> Answer:
    """ListParts: the parts of an upload, sorted by number."""
    upload = await _find_upload(call)
    after = call.number("part-number-marker", 0, MAX_NUMBER) or 0
    limit = call.limit("max-parts")
    found = await call.needs.database.read(
        multipart.list_parts, call.bucket, upload.id, after, limit + 1
    )
    parts, is_truncated = found[:limit], len(found) > limit > 0
    content = [
        *_named(call),
        text("UploadId", upload.id),
        owner("Initiator", call.bucket.account_id),
        owner("Owner", call.bucket.account_id),
        text("StorageClass", upload.attributes.storage_class),
        text("PartNumberMarker", after),
        text("MaxParts", limit),
        text("IsTruncated", is_truncated),
    ]
    if is_truncated:
        content.append(text("NextPartNumberMarker", parts[-1].number))
    if upload.checksum_algorithm is not None:
        content.append(text("ChecksumAlgorithm", upload.checksum_algorithm))
        content.append(text("ChecksumType", upload.checksum_type or ""))
    for part in parts:
        described = [
            text("PartNumber", part.number),
            text("LastModified", iso_time(part.created_at)),
            text("ETag", quoted(part.md5)),
            text("Size", part.stored.size),
            *checksum_texts(_part_checksum(upload, part))[:1],
        ]
        content.append(tag("Part", *described))
    return xml("ListPartsResult", content)


async def list_uploads(call: S3Call) -> Answer:
    """ListMultipartUploads: the open uploads, sorted by key and id."""
    fields, encode = call.request.fields, encoding(call)
    if fields.get("delimiter"):
        raise S3Error("NotImplemented", "Uploads are listed without a delimiter.")
    prefix, key = fields.get("prefix", ""), fields.get("key-marker", "")
    after = fields.get("upload-id-marker", "") if key else ""
    limit = call.limit("max-uploads")
    # Behind a key without an id come the uploads of the next key.
    position = (key.encode() + (b"" if after or not key else b"\0"), after)
    found = await call.needs.database.read(
        upload_rows.list_uploads,
        call.bucket.account_id,
        call.bucket.id,
        span_of(prefix),
        position,
        limit + 1,
    )
    uploads, is_truncated = found[:limit], len(found) > limit > 0
    content = [
        text("Bucket", call.bucket.name),
        text("KeyMarker", encode(key)),
        text("UploadIdMarker", after),
        text("Prefix", encode(prefix)),
        text("MaxUploads", limit),
        text("IsTruncated", is_truncated),
    ]
    if is_truncated:
        content.append(text("NextKeyMarker", encode(uploads[-1].key)))
        content.append(text("NextUploadIdMarker", uploads[-1].id))
    if "encoding-type" in fields:
        content.append(text("EncodingType", "url"))
    content += [
        tag(
            "Upload",
            text("Key", encode(upload.key)),
            text("UploadId", upload.id),
            owner("Initiator", call.bucket.account_id),
            owner("Owner", call.bucket.account_id),
            text("StorageClass", upload.attributes.storage_class),
            text("Initiated", iso_time(upload.created_at)),
        )
        for upload in uploads
    ]
    return xml("ListMultipartUploadsResult", content)


async def complete_upload(call: S3Call) -> Answer:
    """CompleteMultipartUpload: unlike a copy, so quick that no spaces need to be sent meanwhile."""
    encryption = encryption_headers(call)
    listed = await payloads.read_large(call, documents.expect_completion(), checksum_of_object=True)
    upload = await call.needs.database.read(
        upload_rows.find_upload, call.bucket.account_id, call.bucket.id, _upload_id(call)
    )
    if upload is None or upload.key != call.request.key:
        raise S3Error("NoSuchUpload", "The specified multipart upload does not exist.")
    size = call.header("x-amz-mp-object-size")
    if size is not None and not (size.isascii() and size.isdigit() and len(size) <= 18):
        raise S3Error("InvalidArgument", "x-amz-mp-object-size must be a number of bytes.")
    kind = call.header("x-amz-checksum-type")
    asked = Completion(
        upload.id,
        listed,
        call.ctx.new_id(),
        read_conditions(call.request.headers),
        payloads.read_whole_checksum(call),
        None if kind is None else kind.upper(),
        None if size is None else int(size),
    )
    made = await call.change(
        multipart.complete_upload, call.bucket, asked, call.now, call.events, upload_id=upload.id
    )
    content = [
        text("Location", f"/{call.bucket.name}/{made.key}"),
        *_named(call),
        text("ETag", quoted(made.etag)),
        *checksum_texts(made.checksum),
    ]
    return xml("CompleteMultipartUploadResult", content, encryption)


async def abort_upload(call: S3Call) -> Answer:
    """AbortMultipartUpload: 404 if the upload was already aborted or completed."""
    upload = await _find_upload(call)
    await call.change(multipart.abort_upload, call.bucket, upload.id, call.now, upload_id=upload.id)
    return empty(204)


async def _find_upload(call: S3Call) -> Upload:
    """Return the request's open upload; raise `S3Error` if it is for another key."""
    upload = await call.needs.database.read(multipart.find_upload, call.bucket, _upload_id(call))
    if upload.key != call.request.key:
        raise S3Error("NoSuchUpload", "The specified multipart upload does not exist.")
    return upload


def _upload_id(call: S3Call) -> str:
    found = parse_uuid(call.request.fields.get("uploadId", ""))
    if found is None:
        raise S3Error("NoSuchUpload", "The specified multipart upload does not exist.")
    return found


def _part_number(call: S3Call) -> int:
    number = call.number("partNumber", 1, MAX_PARTS)
    if number is None:
        raise S3Error("InvalidArgument", f"partNumber must be from 1 to {MAX_PARTS}.")
    return number


def _part_checksum(upload: Upload, part: Piece) -> ObjectChecksum | None:
    if upload.checksum_algorithm is None or part.checksum is None:
        return None
    return ObjectChecksum(upload.checksum_algorithm, part.checksum)


def _named(call: S3Call) -> list[str]:
    return [text("Bucket", call.request.bucket), text("Key", call.request.key)]

"""Multipart uploads: parts are stored one by one, and become an object at once.

Completing an upload assigns its pieces to the object in one transaction, and copies no bytes. So
it takes as long for 299 GiB as for a few bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from cloudcore.db.base import Connection
from cloudcore.db.rows import json_text
from cloudcore.events import Events
from cloudcore.storage import checksums, errors
from cloudcore.storage import upload_rows as rows
from cloudcore.storage.bucket import OBJECT_CREATED, Bucket, check_size
from cloudcore.storage.bucket_rows import BucketUsage, change_usage, check_room, emit_level
from cloudcore.storage.checksums import Algorithm
from cloudcore.storage.conditions import NO_CONDITIONS, RequestConditions
from cloudcore.storage.needs import BucketBytes
from cloudcore.storage.object_rows import ObjectChecksum, StoredObject
from cloudcore.storage.objects import emit_events, hold, put_in_place
from cloudcore.storage.pieces import rows as piece_rows
from cloudcore.storage.pieces.rows import Piece
from cloudcore.storage.upload_rows import Upload

MIN_PART_BYTES: Final = 5 << 20
"""Minimum bytes of a part that is not the last."""
MAX_PARTS: Final = 10_000
MAX_ASSEMBLED_BYTES: Final = 3600 * (85 << 20)
"""Maximum bytes of an object made of parts, 299 GiB: an hour of writing at 85 MiB a second."""
KEPT_SECONDS: Final = 24 * 3600
"""Seconds for which the row of a completed upload is kept, to answer a repeated completion."""
ABANDONED_SECONDS: Final = 7 * 24 * 3600
"""Age at which an upload that was not completed is aborted."""


class GivenPart(NamedTuple):
    """A part in the list of a completion request."""

    number: int
    etag: str
    """Without quotes."""
    checksums: Mapping[str, str] = {}
    """Base64 checksums by algorithm name, in capitals."""


class Completion(NamedTuple):
    """A request to complete an upload."""

    upload_id: str
    parts: Sequence[GivenPart]
    object_id: str
    """The id for the new object."""
    conditions: RequestConditions = NO_CONDITIONS
    checksum: tuple[str, str] | None = None
    """(algorithm, value) of the whole object, or None if the client has not sent it."""
    checksum_type: str | None = None
    """The type that the client expects; None if not sent."""
    size: int | None = None
    """The bytes that the client expects; None if not sent."""


class _Done(msgspec.Struct):
    """The stored result of a completion, returned when it is repeated."""

    asked: str
    """The hash of the parts in the request."""
    made: StoredObject


def create_upload(tx: Connection, bucket: Bucket, upload: Upload, store: BucketBytes) -> Upload:
    """Insert an upload, and return it.

    Raise `NoSuchBucket` if the bucket was deleted meanwhile, `KeyDeleted` or `KeyDisabled` if the
    bucket's KMS key cannot be used.
    """
    store.key_to_write(tx, bucket.account_id, hold(tx, bucket).kms_key_id)
    rows.add_upload(tx, upload)
    return upload


def find_upload(tx: Connection, bucket: Bucket, upload_id: str, *, locks: bool = False) -> Upload:
    """Return an open upload of a bucket, or raise `NoSuchUpload`; with `locks`, lock its row."""
    of = bucket.account_id, bucket.id
    return checked_open(rows.find_upload(tx, *of, upload_id, locks=locks))


def check_part_number(number: int) -> None:
    """Raise `InvalidPartNumber` if a part cannot have this number."""
    if not 1 <= number <= MAX_PARTS:
        raise errors.InvalidPartNumber


def record_part(tx: Connection, bucket: Bucket, upload_id: str, piece: Piece, most: int) -> Piece:
    """Insert a part; it replaces one with the same number. `most` is the default quota in bytes.

    The caller has called `objects.hold` in `tx`.

    Raise `NoSuchUpload` if the upload was completed or aborted meanwhile, `BytesQuotaExceeded` if
    the account's quota leaves no room for the part.
    """
    upload = find_upload(tx, bucket, upload_id, locks=True)
    of = upload.account_id, upload.id
    before = piece_rows.find_part(tx, *of, piece.number)
    added = piece.stored.size
    if before is not None:
        piece_rows.condemn_part(tx, *of, piece.number, piece.created_at)
        added -= before.stored.size
    use = check_room(tx, upload.account_id, piece.stored.size, most)
    piece_rows.add_piece(tx, upload.account_id, piece, upload_id=upload.id)
    change_usage(tx, bucket.account_id, bucket.id, upload.id, BucketUsage(upload_bytes=added))
    emit_level(tx, upload.account_id, use, piece.stored.size, piece.created_at)
    return piece


def list_parts(
    tx: Connection, bucket: Bucket, upload_id: str, after: int, limit: int
) -> list[Piece]:
    """Return up to `limit` parts of an upload, numbered above `after`; or raise `NoSuchUpload`."""
    upload = find_upload(tx, bucket, upload_id)
    return piece_rows.list_parts(tx, upload.account_id, upload.id, after, limit)


def abort_upload(tx: Connection, bucket: Bucket, upload_id: str, now: int) -> Upload:
    """Delete an open upload and its parts; return the upload, or raise `NoSuchUpload`."""
    return abort(tx, find_upload(tx, bucket, upload_id, locks=True), now)


def abort_if_open(tx: Connection, seen: Upload, now: int) -> None:
    """Delete an open upload and its parts.

    Do nothing if the upload was completed or deleted after the caller read it as `seen`.
    """
    of = seen.account_id, seen.bucket_id, seen.id
    upload = rows.find_upload(tx, *of, locks=True)
    if upload is not None and upload.ended_at is None:
        abort(tx, upload, now)


def abort(tx: Connection, upload: Upload, now: int) -> Upload:
    """Delete an upload that the caller has locked, and its parts; return the upload."""
    of = upload.account_id, upload.id
    freed = piece_rows.upload_bytes(tx, *of)
    piece_rows.condemn_parts(tx, *of, now)
    rows.erase_upload(tx, upload)
    change_usage(
        tx, upload.account_id, upload.bucket_id, upload.id, BucketUsage(upload_bytes=-freed)
    )
    return upload


def complete_upload(
    tx: Connection, bucket: Bucket, asked: Completion, now: int, events: Events
) -> StoredObject:
    """Make an object from the listed parts of an upload; it replaces the existing one.

    Parts that are not listed are deleted. A repeated completion returns the object of the first.

    Raises:
        NoSuchUpload: the upload was aborted, or completed with other parts.
        InvalidPart: a listed part was not uploaded, or has another ETag or checksum.
        InvalidPartOrder: the part numbers do not ascend.
        EntityTooSmall: a part that is not the last has fewer than `MIN_PART_BYTES`.
        EntityTooLarge: the object has more than `MAX_ASSEMBLED_BYTES`.
        BadDigest: the object's checksum, or its type, differs from the request's.
        SizeDiffers: the object's size differs from the request's.
        UnknownChecksum: the request has a checksum of another algorithm than the upload's.
        NoSuchBucket: the bucket was deleted meanwhile.
        ConditionFailed, NoSuchKey: as `objects.record_object`.

    """
    upload = rows.find_upload(tx, bucket.account_id, bucket.id, asked.upload_id, locks=True)
    if upload is None:
        raise errors.NoSuchUpload
    fingerprint = _fingerprint(asked.parts)
    if upload.completion is not None:
        done = msgspec.json.decode(upload.completion, type=_Done)
        if done.asked != fingerprint:
            raise errors.NoSuchUpload
        _check_whole(upload, asked, done.made.checksum, done.made.size)
        return done.made
    uploaded = piece_rows.list_parts(tx, upload.account_id, upload.id, 0, MAX_PARTS)
    chosen = _chosen(upload, asked.parts, {piece.number: piece for piece in uploaded})
    made = _assembled(upload, asked, chosen, now)
    hold(tx, bucket)
    before = put_in_place(tx, bucket, made, asked.conditions)
    freed = sum(piece.stored.size for piece in uploaded)
    ids = [piece.stored.id for piece in chosen]
    moved = piece_rows.move_parts(tx, upload.account_id, upload.id, ids, made.id)
    assert moved == len(ids), "the upload is locked"
    piece_rows.condemn_parts(tx, upload.account_id, upload.id, now)
    change = BucketUsage(1 - before.objects, made.size - before.object_bytes, -freed)
    change_usage(tx, bucket.account_id, bucket.id, made.id, change)
    done = _Done(fingerprint, made)
    rows.end_upload(tx, upload, json_text(done), now)
    emit_events(tx, events, OBJECT_CREATED, bucket, [made], now)
    return made


def checked_open(upload: Upload | None) -> Upload:
    """Return an upload if it is neither completed nor aborted, or raise `NoSuchUpload`."""
    if upload is None or upload.ended_at is not None:
        raise errors.NoSuchUpload
    return upload


def _chosen(upload: Upload, asked: Sequence[GivenPart], uploaded: dict[int, Piece]) -> list[Piece]:
    """Check the parts that a completion lists, and return their pieces."""
    if not asked:
        raise errors.InvalidPart("parts: at least one", field="parts", reason="out_of_range")
    if any(one.number >= other.number for one, other in pairwise(asked)):
        raise errors.InvalidPartOrder(
            "parts: in ascending order of their numbers", field="parts", reason="malformed"
        )
    chosen = []
    for given in asked:
        piece = uploaded.get(given.number)
        if piece is None or piece.md5 != given.etag.strip('"').lower():
            raise errors.InvalidPart(
                f"part {given.number} was not uploaded with this ETag",
                field="parts",
                part_number=given.number,
            )
        for name, value in given.checksums.items():
            if value != _known_checksum(upload, piece, name):
                raise errors.InvalidPart(
                    f"part {given.number} was not uploaded with this {name} checksum",
                    field="parts",
                    part_number=given.number,
                )
        chosen.append(piece)
    for piece in chosen[:-1]:
        if piece.stored.size < MIN_PART_BYTES:
            raise errors.EntityTooSmall(
                f"part {piece.number} has {piece.stored.size} bytes; each but the last has at"
                f" least {MIN_PART_BYTES}",
                field="parts",
                part_number=piece.number,
            )
    return chosen


def _known_checksum(upload: Upload, piece: Piece, name: str) -> str:
    """Return the checksum of a part by the algorithm `name`: that of its upload, or SHA-256.

    Raise `UnknownChecksum` for any other algorithm.
    """
    if name == upload.checksum_algorithm and piece.checksum is not None:
        return piece.checksum
    if name == Algorithm.SHA256:
        return checksums.encode(bytes.fromhex(piece.stored.sha256))
    raise errors.UnknownChecksum(upload.checksum_algorithm, name)


def _check_whole(
    upload: Upload, asked: Completion, whole: ObjectChecksum | None, size: int
) -> None:
    """Compare the assembled object with the size and checksum in the request."""
    if asked.checksum is not None:
        name, value = asked.checksum
        if whole is None or name != whole.algorithm:
            raise errors.UnknownChecksum(upload.checksum_algorithm, name)
        # Clients may leave out the number of parts of a composite checksum.
        if value != whole.value and value != whole.value.partition("-")[0]:
            raise errors.BadDigest("the object has another checksum", reason="checksum_mismatch")
    if asked.checksum_type is not None and asked.checksum_type != upload.checksum_type:
        raise errors.BadDigest(
            "the checksum of the upload has another type", reason="checksum_mismatch"
        )
    if asked.size is not None and asked.size != size:
        raise errors.SizeDiffers(size)


def _assembled(
    upload: Upload, asked: Completion, chosen: Sequence[Piece], now: int
) -> StoredObject:
    size = sum(piece.stored.size for piece in chosen)
    check_size(size, MAX_ASSEMBLED_BYTES)
    checksum = _checksum(upload, chosen)
    _check_whole(upload, asked, checksum, size)
    outer = hashlib.md5(usedforsecurity=False)
    for piece in chosen:
        outer.update(bytes.fromhex(piece.md5))
    return StoredObject(
        asked.object_id,
        upload.bucket_id,
        upload.account_id,
        upload.key,
        size,
        f"{outer.hexdigest()}-{len(chosen)}",
        upload.attributes,
        checksum,
        now,
    )


def _checksum(upload: Upload, chosen: Sequence[Piece]) -> ObjectChecksum | None:
    """Compute the checksum of the object from its parts; None if the upload has no algorithm."""
    if upload.checksum_algorithm is None:
        return None
    algorithm = Algorithm(upload.checksum_algorithm)
    parts = []
    for piece in chosen:
        digest = checksums.decode(algorithm, piece.checksum or "")
        assert digest is not None, "each part of such an upload has a checksum"
        parts.append(checksums.Part(digest, piece.stored.size))
    if upload.checksum_type == "FULL_OBJECT":
        value = checksums.encode(checksums.combine(algorithm, parts))
        return ObjectChecksum(algorithm.value, value, "FULL_OBJECT")
    return ObjectChecksum(algorithm.value, checksums.composite(algorithm, parts), "COMPOSITE")


def _fingerprint(parts: Sequence[GivenPart]) -> str:
    listed = [
        (part.number, part.etag.strip('"').lower(), *sorted(part.checksums.items()))
        for part in parts
    ]
    return hashlib.sha256(msgspec.json.encode(listed)).hexdigest()

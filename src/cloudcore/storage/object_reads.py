"""Read objects: find one, evaluate its conditions, and open a range of its bytes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.serving.asgi import begin_stream
from cloudcore.storage import objects
from cloudcore.storage.bucket import TRANSFER, Bucket
from cloudcore.storage.conditions import (
    NO_CONDITIONS,
    Outcome,
    RequestConditions,
    check_copy,
    check_read,
    range_applies,
)
from cloudcore.storage.errors import BytesDamaged, InvalidPartNumber, NoSuchPart
from cloudcore.storage.needs import KeyAccess, OpenBytes, StorageNeeds, StoredPiece
from cloudcore.storage.object_rows import ObjectChecksum, StoredObject
from cloudcore.storage.pieces import rows as piece_rows
from cloudcore.storage.pieces.rows import ListedPiece, Piece

_LOOKS: Final = 5

Ranged = Callable[[int], tuple[int, int] | None]
"""From the size of an object, returns the range ``[start, stop)`` that a request selects, or None
if it selects all. Raises `InvalidRange`."""


class FoundPart(NamedTuple):
    """A part of an object."""

    checksum: ObjectChecksum | None
    """The part's checksum by the object's algorithm; None if the object has none."""
    total: int
    """The object's number of parts."""


class FoundObject(NamedTuple):
    """An object, and the requested range of it."""

    object: StoredObject
    outcome: Outcome
    start: int
    stop: int
    is_range: bool
    """True if the answer is a 206: the request selects a range, or a part that has bytes."""
    part: FoundPart | None
    """The requested part; None if no part was requested."""
    pieces: Sequence[StoredPiece]
    """The pieces that contain the range; empty if no byte will be read."""
    skipped: int
    """Bytes of the first piece that precede the range."""
    usable: KeyAccess | None


async def find_object(
    needs: StorageNeeds,
    bucket: Bucket,
    key: str,
    conditions: RequestConditions = NO_CONDITIONS,
    ranged: Ranged | None = None,
    part_number: int | None = None,
    *,
    is_copy: bool = False,
    is_head: bool = False,
) -> FoundObject:
    """Return an object to read, with the requested range, in one transaction.

    `ranged` parses the requested range; `part_number` requests one part instead. `is_head` means
    that the caller will read no bytes. With `is_copy`, the object is the source of a copy, and the
    conditions are those of the copy.

    Raises:
        NoSuchKey: there is no such object.
        ConditionFailed: a condition does not hold (see `check_read`, `check_copy`).
        InvalidRange: the range contains no byte of the object.
        InvalidPartNumber: `part_number` is less than 1.
        NoSuchPart: the object has fewer parts than `part_number`.
        BytesDamaged: pieces are absent, or one in the range is known to be damaged.
        KeyDeleted, KeyDisabled: the KMS key of a piece in the range cannot be used.

    """

    def find(tx: Connection) -> FoundObject:
        for _ in range(_LOOKS):
            found = objects.find_object(tx, bucket, key)
            if is_copy:
                check_copy(conditions, found.etag, found.created_at)
            outcome = check_read(conditions, found.etag, found.created_at)
            listed: Sequence[ListedPiece] = ()
            part = None
            if part_number is not None:
                listed = piece_rows.list_pieces(tx, bucket.account_id, found.id)
                if not _are_all(found, _sizes(listed)):
                    continue
                start, stop, is_range = _span_of_part(found, listed, part_number)
                checksum = listed[part_number - 1].checksum_of(found)
                part = FoundPart(checksum, len(listed))
            else:
                span = None
                if ranged is not None and range_applies(conditions, found.etag):
                    span = ranged(found.size)
                start, stop, is_range = (0, found.size, False) if span is None else (*span, True)
            asked = FoundObject(found, outcome, start, stop, is_range, part, (), 0, None)
            if is_head or outcome != "send":
                return asked
            held = _find_pieces(tx, asked, _sizes(listed))
            if held is None:
                continue
            pieces, skipped = held
            if any(piece.damage is not None for piece in pieces):
                raise BytesDamaged
            stored = [piece.stored for piece in pieces]
            usable = needs.bytes.keys_to_read(tx, bucket.account_id, stored)
            return asked._replace(pieces=stored, skipped=skipped, usable=usable)
        raise BytesDamaged

    return await needs.database.read(find)


def list_parts(tx: Connection, bucket: Bucket, key: str) -> tuple[StoredObject, list[ListedPiece]]:
    """Return an object and all its pieces.

    Raise `NoSuchKey` if there is no such object, `BytesDamaged` if pieces are absent.
    """
    for _ in range(_LOOKS):
        found = objects.find_object(tx, bucket, key)
        listed = piece_rows.list_pieces(tx, bucket.account_id, found.id)
        if _are_all(found, _sizes(listed)):
            return found, listed
    raise BytesDamaged


async def open_to_send(needs: StorageNeeds, found: FoundObject) -> OpenBytes:
    """Open a found range, as `open_object` does, and meter its bytes as sent to a client."""
    opened = await open_object(needs, found)
    needs.meter.count(found.object.account_id, TRANSFER.name, opened.length)
    return opened


async def open_object(needs: StorageNeeds, found: FoundObject) -> OpenBytes:
    """Open a found range of an object; the caller closes it.

    Raise `BytesDamaged` if the first piece is absent or cannot be opened, `Unavailable` if the
    store or the provider of a key failed, `KeyDeleted` or `KeyDisabled` if a key cannot be used.
    """
    assert found.usable is not None, "it was found to be sent"
    start, stop = found.skipped, found.skipped + found.stop - found.start
    account_id = found.object.account_id
    return await needs.bytes.open(account_id, found.pieces, found.usable, start, stop)


async def begin(opened: OpenBytes) -> AsyncIterator[bytes]:
    """Read the first bytes of an open range; return an iterator over all of its bytes.

    So an error in the first bytes can still become an error response. Raise `Unavailable` if the
    bytes are absent or damaged. On any error, the range is closed.
    """
    try:
        return await begin_stream(opened.stream())
    except BaseException:
        await opened.aclose()
        raise


async def parts_of(opened: OpenBytes) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of an open range, and close it at the end."""
    try:
        async for part in opened.stream():
            yield part
    finally:
        await opened.aclose()


def _sizes(listed: Sequence[ListedPiece]) -> list[tuple[int, int]]:
    """Return (number, size) of each piece."""
    return [(each.number, each.size) for each in listed]


def _are_all(found: StoredObject, sizes: Sequence[tuple[int, int]]) -> bool:
    """Return True if the sizes are those of all pieces of the object.

    Pieces are missing if the object was replaced between two statements.
    """
    return bool(sizes) and sum(size for _, size in sizes) == found.size


def _span_of_part(
    found: StoredObject, listed: Sequence[ListedPiece], part_number: int
) -> tuple[int, int, bool]:
    """Return (start, stop, has_bytes) of a part, counted from 1; piece numbers may have gaps."""
    if part_number < 1:
        raise InvalidPartNumber
    if part_number > len(listed):
        raise NoSuchPart(found.size)
    start = sum(each.size for each in listed[: part_number - 1])
    size = listed[part_number - 1].size
    return start, start + size, size > 0


def _find_pieces(
    tx: Connection, asked: FoundObject, sizes: Sequence[tuple[int, int]]
) -> tuple[list[Piece], int] | None:
    """Return the pieces of a range, and the bytes of the first piece that precede the range.

    `sizes` are the (number, size) of each piece, or empty if not yet read. Return None if the
    object was replaced meanwhile. Rows of pieces outside the range, which may be large, are not
    read.
    """
    of = asked.object.account_id, asked.object.id
    if (asked.start, asked.stop) == (0, asked.object.size):
        pieces = piece_rows.pieces_of(tx, *of)
        found = [(each.number, each.stored.size) for each in pieces]
        return (pieces, 0) if _are_all(asked.object, found) else None
    sizes = sizes or piece_rows.sizes_of(tx, *of)
    if not _are_all(asked.object, sizes):
        return None
    held: list[tuple[int, int]] = []
    skipped = at = 0
    for number, size in sizes:
        if at < asked.stop and at + size > asked.start:
            skipped = skipped if held else asked.start - at
            held.append((number, size))
        at += size
    held = held or [sizes[-1]]  # an empty part
    (first, _), (last, _) = held[0], held[-1]
    pieces = piece_rows.pieces_between(tx, *of, first, last)
    is_same = [(each.number, each.stored.size) for each in pieces] == held
    return (pieces, skipped) if is_same else None

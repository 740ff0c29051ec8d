"""Store request bodies as objects or parts of uploads, and copy objects.

The bytes are stored first. Then one transaction writes the row and condemns the pieces that it
replaces. A crash in between leaves bytes without a row, which the scan finds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from typing import Final, NamedTuple, Self, TypeVar

from cloudcore.db.base import Connection, OutcomeUnknown
from cloudcore.errors import PlatformError
from cloudcore.events import Events
from cloudcore.serving.asgi import Body
from cloudcore.storage import checksums, multipart, objects
from cloudcore.storage.bucket import Bucket, check_size, key_bytes
from cloudcore.storage.bucket_rows import check_room
from cloudcore.storage.checksums import Algorithm
from cloudcore.storage.conditions import NO_CONDITIONS, RequestConditions, check_write
from cloudcore.storage.errors import IncompleteBody
from cloudcore.storage.needs import (
    KeyAccess,
    OpenBytes,
    StagedPiece,
    StorageNeeds,
    StoredPiece,
)
from cloudcore.storage.object_rows import (
    ObjectAttributes,
    ObjectChecksum,
    StoredObject,
    find_object,
)
from cloudcore.storage.pieces.rows import Piece
from cloudcore.threads import Threads

T = TypeVar("T")

COPIED_AT_ONCE: Final = 32 << 20
"""Bytes that a copy moves before it lets other copies use its thread."""
_COPYING: Final = Threads("copies", 2)
"""Copies of gigabytes have their own threads, so that other reads and writes need not wait."""


class Digests(NamedTuple):
    """The hashes of received bytes."""

    size: int
    md5: str
    """In hex."""
    sha256: str
    """In hex."""
    checksum: str | None
    """By the algorithm in `Terms`, in base64; None without an algorithm."""


class Terms(NamedTuple):
    """The announced size and hashes of a body."""

    declared: int | None = None
    """The number of bytes, or a lower bound; None if unknown."""
    algorithm: Algorithm | None = None
    """The algorithm of the checksum to compute; None for no checksum."""
    verify: Callable[[Digests], None] | None = None
    """Raises an error if the received bytes are not the announced ones. Called in a thread, before
    the row is written."""


async def store_object(
    needs: StorageNeeds,
    events: Events,
    bucket: Bucket,
    key: str,
    attributes: ObjectAttributes,
    body: Body,
    terms: Terms = Terms(),  # noqa: B008 - immutable
    conditions: RequestConditions = NO_CONDITIONS,
) -> StoredObject:
    """Store a body as the object with this key, replacing an existing one; publish to `events`.

    Raises:
        KeyTooLong, EntityTooLarge, IncompleteBody: see `errors`.
        ConditionFailed, NoSuchKey: see `conditions.check_write`; checked before the body is read,
            and again when the row is written.
        BytesQuotaExceeded: the quota leaves no room; checked at the same two points.
        NoSuchBucket: the bucket was deleted meanwhile.
        KeyDeleted, KeyDisabled: the bucket's KMS key cannot be used.
        Unavailable: the store or the provider of keys failed.
        PlatformError: raised by `terms.verify`.

    """
    key_bytes(key)
    check_size(terms.declared or 0)

    def look(tx: Connection) -> KeyAccess:
        if conditions != NO_CONDITIONS or terms.declared:
            before = find_object(tx, bucket, key)
            check_write(conditions, before and before.etag)
            check_room(tx, bucket.account_id, terms.declared or 0, needs.account_bytes)
        return needs.bytes.key_to_write(tx, bucket.account_id, bucket.kms_key_id)

    usable = await needs.database.read(look)
    async with _Staging(needs, await needs.bytes.stage(bucket.account_id, usable)) as staging:
        stored, digests = await staging.receive(body, terms)
        checksum = None
        if terms.algorithm is not None and digests.checksum is not None:
            checksum = ObjectChecksum(terms.algorithm.value, digests.checksum)
        made = StoredObject(
            stored.id,
            bucket.id,
            bucket.account_id,
            key,
            stored.size,
            digests.md5,
            attributes,
            checksum,
            needs.clock(),
        )
        piece = Piece(1, digests.md5, digests.checksum, stored, made.created_at)

        def record_object(tx: Connection, now: Bucket, piece: Piece) -> StoredObject:
            most = needs.account_bytes
            return objects.record_object(tx, now, made, piece, most, events, conditions)

        return await staging.record(bucket, piece, record_object)


async def store_part(
    needs: StorageNeeds,
    bucket: Bucket,
    upload_id: str,
    number: int,
    body: Body,
    terms: Terms = Terms(),  # noqa: B008 - immutable
) -> Piece:
    """Store a body as a part of an upload, replacing the part with the same number.

    The checksum algorithm of the upload, if any, takes precedence over that in `terms`.

    Raises:
        InvalidPartNumber, EntityTooLarge, IncompleteBody: see `errors`.
        NoSuchUpload: there is no such open upload, or it was ended meanwhile.
        NoSuchBucket, BytesQuotaExceeded, KeyDeleted, KeyDisabled, Unavailable, PlatformError: as
            `store_object`.

    """
    multipart.check_part_number(number)
    check_size(terms.declared or 0)

    def look(tx: Connection) -> tuple[Algorithm | None, KeyAccess]:
        upload = multipart.find_upload(tx, bucket, upload_id)
        check_room(tx, bucket.account_id, terms.declared or 0, needs.account_bytes)
        name = upload.checksum_algorithm
        algorithm = None if name is None else Algorithm(name)
        return algorithm, needs.bytes.key_to_write(tx, bucket.account_id, bucket.kms_key_id)

    algorithm, usable = await needs.database.read(look)
    async with _Staging(needs, await needs.bytes.stage(bucket.account_id, usable)) as staging:
        wanted = terms if algorithm is None else terms._replace(algorithm=algorithm)
        stored, digests = await staging.receive(body, wanted)
        piece = Piece(number, digests.md5, digests.checksum, stored, needs.clock())

        def record_part(tx: Connection, now: Bucket, piece: Piece) -> Piece:
            return multipart.record_part(tx, now, upload_id, piece, needs.account_bytes)

        return await staging.record(bucket, piece, record_part)


def copy_of(opened: OpenBytes) -> Body:
    """Return an open object, or an open range of an object, as a body to store."""

    async def copy(sink: Callable[[memoryview], None], finish: Callable[[bool], T], /) -> T:
        chunks = opened.chunks()

        def move() -> bool:
            """Move up to `COPIED_AT_ONCE` bytes; return False at the end."""
            left = COPIED_AT_ONCE
            for view in chunks:
                sink(view)
                left -= len(view)
                if left <= 0:
                    return True
            return False

        while await _COPYING(move):
            pass
        return await _COPYING(finish, True)  # noqa: FBT003 - the signature of an end

    return copy


@dataclass(slots=True)
class _Staging:
    """Holds the bytes of a new piece until its row is written."""

    needs: StorageNeeds
    staged: StagedPiece
    may_be_recorded: bool = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is not None and not self.may_be_recorded:
                with suppress(PlatformError):  # then the scan deletes the bytes
                    await self.staged.discard()
        finally:
            await self.staged.aclose()

    async def receive(self, body: Body, terms: Terms) -> tuple[StoredPiece, Digests]:
        """Store a body; return the piece and the hashes of the body."""
        md5 = hashlib.md5(usedforsecurity=False)
        checksum = None if terms.algorithm is None else checksums.new_checksum(terms.algorithm)
        size = 0

        def write(view: memoryview) -> None:
            nonlocal size
            size += len(view)
            check_size(size)
            md5.update(view)
            if checksum is not None:
                checksum.update(view)
            self.staged.write(view)

        def finish(is_complete: bool) -> tuple[StoredPiece, Digests]:  # noqa: FBT001
            if not is_complete:
                raise IncompleteBody
            stored = self.staged.finish()
            shown = None if checksum is None else checksums.encode(checksum.digest())
            digests = Digests(size, md5.hexdigest(), stored.sha256, shown)
            if terms.verify is not None:
                terms.verify(digests)
            return stored, digests

        return await body(write, finish)

    async def record(
        self, bucket: Bucket, piece: Piece, change: Callable[[Connection, Bucket, Piece], T]
    ) -> T:
        """Write the piece's row with `change` in a transaction; return the result of `change`.

        If the outcome of the commit is unknown, the bytes are kept. If the bucket was bound to
        another KMS key while the bytes were received, first wrap the data key under that KMS key:
        the run that moves the bucket's pieces may already be over.
        """

        @wraps(change)
        def unless_bound_anew(tx: Connection) -> tuple[Bucket, T | None]:
            now = objects.hold(tx, bucket)
            return now, change(tx, now, piece) if now.kms_key_id == bucket.kms_key_id else None

        while True:
            self.may_be_recorded = True
            try:
                now, recorded = await self.needs.database.write(unless_bound_anew)
            except OutcomeUnknown:
                raise
            except PlatformError:
                self.may_be_recorded = False
                raise
            if recorded is not None:
                return recorded
            self.may_be_recorded = False
            bucket, piece = now, await self._moved(now, piece)

    async def _moved(self, bucket: Bucket, piece: Piece) -> Piece:
        """Wrap the data key of a piece under the KMS key to which its bucket is bound now.

        A piece whose own KMS key was disabled meanwhile is returned unchanged, as it would be left
        by a run that moves the bucket's pieces.
        """
        stored, needs = piece.stored, self.needs
        key = await needs.database.read(needs.keys.describe, bucket.account_id, bucket.kms_key_id)
        if key is None:
            return piece
        found = await needs.bytes.rewrap(bucket.account_id, key.id, [stored.wraps])
        for wrapped in found.wraps.values():
            stored = stored._replace(kms_key_id=key.id, wrapped=wrapped)
        return piece._replace(stored=stored)

"""Check whether an object's stored bytes are whole, and set or remove its mark of damage.

The stored bytes are compared with their BLAKE3 checksum or, if they are stored as they were pushed,
with the object's digest. That needs no key, whatever their encoding.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from hashlib import sha256
from typing import NamedTuple

from blake3 import blake3

from cloudcore.db.base import Connection
from registry.blobstore.base import BlobReader, ObjectDamaged, ObjectUnknown
from registry.errors import StoreUnavailable
from registry.gc.pace import Pace
from registry.metadata.blobs import damage
from registry.metadata.collector.audit import ObjectRow


class ObjectState(NamedTuple):
    """The result of checking an object's stored bytes."""

    problem: str | None = None
    """What is wrong; None if nothing is."""
    damage: str | None = None
    """The mark to set, or None if the bytes may be whole or are already marked."""
    read_bytes: int = 0
    is_verified: bool = False
    """True if all bytes were read and have the right hash."""


async def look(store: BlobReader, row: ObjectRow, pace: Pace, *, reads: bool) -> ObjectState:
    """Check an object's stored bytes: presence and size, and with `reads` also their hash.

    Raises:
        ReadingStopped: `pace` was stopped.

    """
    if row.is_inline:
        return await _look_at_body(row, pace, reads=reads)
    try:
        stored = await store.open_stored(row.stored_id, row.stored_size)
    except ObjectUnknown:
        return ObjectState("its bytes are gone", damage.ABSENT)
    except ObjectDamaged as error:
        return ObjectState(str(error), damage.SIZE)
    except StoreUnavailable as error:
        return _unreadable(error)
    async with aclosing(stored):
        if not reads:
            return _known(row)
        return await pace.in_thread(_hash, stored.chunks(), row, pace)


async def _look_at_body(row: ObjectRow, pace: Pace, *, reads: bool) -> ObjectState:
    """Check an object whose stored bytes are in the database, as `look`."""
    if row.body is None:
        return ObjectState("its bytes are gone", damage.ABSENT)
    if len(row.body) != row.stored_size:
        problem = f"it has {len(row.body)} bytes instead of {row.stored_size}"
        return ObjectState(problem, damage.SIZE)
    if not reads:
        return _known(row)
    return await pace.in_thread(_hash, [memoryview(row.body)], row, pace)


def _hash(chunks: Iterable[memoryview], row: ObjectRow, pace: Pace) -> ObjectState:
    """Read an object and compare its hash with the one it must have. Blocks."""
    size = 0
    hasher = sha256() if row.checksum is None else blake3()
    try:
        for view in chunks:
            hasher.update(view)
            size += len(view)
            pace.spend(len(view))
    except StoreUnavailable as error:
        return _unreadable(error)._replace(read_bytes=size)
    actual = hasher.hexdigest()
    if row.checksum is None and f"sha256:{actual}" != row.digest:
        return ObjectState(f"its bytes hash to sha256:{actual}", damage.DIGEST, size)
    if row.checksum not in (None, actual):
        problem = f"its stored bytes hash to blake3:{actual} instead of blake3:{row.checksum}"
        return ObjectState(problem, damage.DIGEST, size)
    return ObjectState(read_bytes=size, is_verified=True)


def _known(row: ObjectRow) -> ObjectState:
    """Return a problem if the object has a mark that only reading its bytes can remove."""
    if row.damage in (damage.DIGEST, damage.UNREADABLE):
        return ObjectState("it was found damaged before; without --quick its bytes are read again")
    return ObjectState()


def _unreadable(error: StoreUnavailable) -> ObjectState:
    """Return the problem of unreadable bytes; EIO is damage, other errors are not."""
    refusal = error.__cause__
    is_damage = isinstance(refusal, OSError) and refusal.errno == errno.EIO
    problem = f"its bytes cannot be read: {error.message}"
    return ObjectState(problem, damage.UNREADABLE if is_damage else None)


def confirm(tx: Connection, rows: Sequence[ObjectRow], now: int) -> None:
    """Remove the marks of objects that were read and are whole, and set their `verified_at`.

    Skip those that were marked since: hours may lie between reading the first and the last.
    """
    for row in rows:
        damage.confirm(tx, row.account_id, row.stored_id, row.verified_at, row.damage, now)

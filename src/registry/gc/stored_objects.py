"""Check whether an object's file holds its bytes, and set or remove its mark of damage."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from contextlib import aclosing
from typing import NamedTuple

from cloudcore.db.base import Connection
from registry.blobstore.base import BlobReader, ObjectDamaged, ObjectUnknown, OpenObject
from registry.errors import StoreUnavailable
from registry.metadata.blobs import damage
from registry.metadata.collector.audit import ObjectRow
from registry.oci.digest import new_hasher


class FileState(NamedTuple):
    """The result of checking an object's file."""

    problem: str | None = None
    """What is wrong; None if nothing is."""
    damage: str | None = None
    """The mark to set, or None: the file may be whole, or is already marked."""
    read_bytes: int = 0
    is_verified: bool = False
    """True if all bytes were read and hash to the digest."""


async def look(store: BlobReader, row: ObjectRow, *, reads: bool) -> FileState:
    """Check an object's file: presence and size, and with `reads` also its hash."""
    try:
        stored = await store.open(row.stored_id, row.size)
    except ObjectUnknown:
        return FileState("its bytes are gone", damage.ABSENT)
    except ObjectDamaged as error:
        return FileState(str(error), damage.SIZE)
    except StoreUnavailable as error:
        return _unreadable(error)
    async with aclosing(stored):
        return await asyncio.to_thread(_hash, stored, row) if reads else _known(row)


def _hash(stored: OpenObject, row: ObjectRow) -> FileState:
    """Read an object and compare its hash with its digest. Blocks."""
    size = 0
    hasher = new_hasher("sha256")
    try:
        for view in stored.chunks():
            hasher.update(view)
            size += len(view)
    except StoreUnavailable as error:
        return _unreadable(error)._replace(read_bytes=size)
    actual = f"sha256:{hasher.hexdigest()}"
    if actual != row.digest:
        return FileState(f"its bytes hash to {actual}", damage.DIGEST, size)
    return FileState(read_bytes=size, is_verified=True)


def _known(row: ObjectRow) -> FileState:
    """Return a problem if the object has a mark that only reading its bytes can remove."""
    if row.damage in (damage.DIGEST, damage.UNREADABLE):
        return FileState("it was found damaged before; without --quick its bytes are read again")
    return FileState()


def _unreadable(error: StoreUnavailable) -> FileState:
    """Return the problem of unreadable bytes; EIO is damage, other errors are not."""
    refusal = error.__cause__
    is_damage = isinstance(refusal, OSError) and refusal.errno == errno.EIO
    problem = f"its bytes cannot be read: {error.message}"
    return FileState(problem, damage.UNREADABLE if is_damage else None)


def confirm(tx: Connection, rows: Sequence[ObjectRow], now: int) -> None:
    """Remove the marks of objects that were read and are whole, and set their `verified_at`.

    Skip those that were marked since: hours may lie between reading the first and the last.
    """
    for row in rows:
        damage.confirm(tx, row.account_id, row.stored_id, row.verified_at, row.damage, now)

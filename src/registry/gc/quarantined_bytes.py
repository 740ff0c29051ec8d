"""Verify the bytes of a blob in quarantine, and open its data key if a KMS key allows it."""

from __future__ import annotations

from contextlib import aclosing
from typing import NamedTuple

from blake3 import blake3

from cloudcore.db.base import Connection
from cloudcore.errors import Unavailable
from registry.blobstore.base import PLAIN, DataKey, ObjectDamaged, ObjectUnknown, OpenObject
from registry.blobstore.inline import open_inline
from registry.errors import BlobUnknown, DigestMismatch, StoreUnavailable
from registry.gc.pace import VERIFYING
from registry.metadata.blobs.inline import read_body
from registry.metadata.blobs.wraps import Wrap
from registry.metadata.collector import collection
from registry.metadata.collector.collection import Swept
from registry.oci.digest import new_hasher
from registry.services.blobs.known_bytes import open_any
from registry.services.context import ServiceContext


class WholeBytes(NamedTuple):
    """Bytes in quarantine that are whole."""

    swept: Swept
    data_key: DataKey | None
    """None if they are plain, or no KMS key opens them now."""


async def find_whole_bytes(ctx: ServiceContext, account_id: str, digest: str) -> WholeBytes:
    """Return quarantined bytes with this sha256 digest that are whole; such as open, if any do.

    Raises:
        BlobUnknown: no such blob is in quarantine, or its removal has begun.
        DigestMismatch: its bytes are damaged.
        Unavailable: they may open when the provider of a KMS key is there again.

    """
    refusal: BlobUnknown | DigestMismatch = unknown_in_quarantine(digest)
    locked: WholeBytes | None = None
    away: Unavailable | None = None
    for swept, wraps in await ctx.database.read(_list, account_id, digest):
        try:
            data_key = await open_any(ctx, account_id, swept.stored_id, "", wraps)
        except Unavailable as error:
            away = error
            continue
        try:
            await _verify(ctx, swept, data_key)
        except (BlobUnknown, DigestMismatch) as error:
            refusal = error
            continue
        found = WholeBytes(swept, data_key)
        if swept.encoding == PLAIN or data_key is not None:
            return found
        locked = locked or found
    if away is not None:
        raise away
    if locked is not None:
        return locked
    raise refusal


def unknown_in_quarantine(digest: str) -> BlobUnknown:
    """Return the error for a blob that is not in quarantine."""
    return BlobUnknown(f"no blob {digest} is in quarantine", digest=digest)


def _list(tx: Connection, account_id: str, digest: str) -> list[tuple[Swept, list[Wrap]]]:
    return [
        (swept, collection.quarantined_wraps(tx, account_id, swept.id))
        for swept in collection.list_recoverable(tx, account_id, digest)
    ]


async def _verify(ctx: ServiceContext, swept: Swept, data_key: DataKey | None) -> None:
    """Compare the bytes with their digest, or if they cannot be opened, with their checksum."""
    is_closed = swept.encoding != PLAIN and data_key is None
    try:
        stored = await (_open_stored(ctx, swept) if is_closed else _open(ctx, swept, data_key))
        async with aclosing(stored):
            if is_closed:
                actual = await VERIFYING(_checksum, stored)
                is_whole = actual == swept.checksum
            else:
                actual = await VERIFYING(_digest, stored)
                is_whole = actual == swept.digest
    except ObjectUnknown:
        raise unknown_in_quarantine(swept.digest) from None
    except ObjectDamaged as error:
        raise DigestMismatch(str(error)) from None
    except StoreUnavailable as error:
        if data_key is None:
            raise
        raise DigestMismatch(str(error)) from None  # a frame that does not open, or the disk fails
    if not is_whole:
        raise DigestMismatch(f"its bytes hash to {actual}")


async def _open(ctx: ServiceContext, swept: Swept, data_key: DataKey | None) -> OpenObject:
    if not swept.is_inline:
        return await ctx.reader.open(swept.stored_id, swept.size, data_key)
    body = await ctx.database.read(read_body, swept.stored_id)
    return open_inline(body, swept.stored_id, swept.size, data_key)


async def _open_stored(ctx: ServiceContext, swept: Swept) -> OpenObject:
    if not swept.is_inline:
        return await ctx.reader.open_stored(swept.stored_id, swept.stored_size)
    body = await ctx.database.read(read_body, swept.stored_id)
    return open_inline(body, swept.stored_id, swept.stored_size)


def _digest(opened: OpenObject) -> str:
    hasher = new_hasher("sha256")
    for view in opened.chunks():
        hasher.update(view)
    return f"sha256:{hasher.hexdigest()}"


def _checksum(opened: OpenObject) -> str:
    hasher = blake3()
    for view in opened.chunks():
        hasher.update(view)
    return hasher.hexdigest()

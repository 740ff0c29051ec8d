"""Recover blobs from quarantine while their bytes exist."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from cloudcore.db.base import Connection
from registry.blobstore.base import ObjectDamaged, ObjectUnknown, OpenObject
from registry.blobstore.inline import open_inline
from registry.errors import BlobUnknown, DigestMismatch, NameUnknown
from registry.metadata.blobs import objects as blobs
from registry.metadata.blobs.inline import read_body
from registry.metadata.blobs.objects import NewObject
from registry.metadata.blobs.switching import switch_bytes
from registry.metadata.collector import collection
from registry.metadata.collector.collection import Swept
from registry.metadata.repositories.live import is_live
from registry.oci.digest import new_hasher
from registry.services.context import ServiceContext


async def recover_blob(
    ctx: ServiceContext, account_id: str, repository_id: str, digest: str
) -> None:
    """Link the quarantined blob with this sha256 digest into a repository of its account.

    Raises:
        BlobUnknown: no such blob is in quarantine, or its removal has begun.
        DigestMismatch: its bytes are damaged.
        NameUnknown: the repository was deleted meanwhile.

    """
    swept = await _find_whole(ctx, account_id, digest)
    await ctx.database.write(_recover, repository_id, swept, ctx.new_id, ctx.clock())


async def _find_whole(ctx: ServiceContext, account_id: str, digest: str) -> Swept:
    """Return a quarantined object with this digest whose bytes are whole."""
    refusal: BlobUnknown | DigestMismatch = _unknown(digest)
    for swept in await ctx.database.read(collection.list_recoverable, account_id, digest):
        try:
            await _verify(ctx, swept)
        except (BlobUnknown, DigestMismatch) as error:
            refusal = error
        else:
            return swept
    raise refusal


async def _verify(ctx: ServiceContext, swept: Swept) -> None:
    try:
        stored = await _open(ctx, swept)
    except ObjectUnknown:
        raise _unknown(swept.digest) from None
    except ObjectDamaged as error:
        raise DigestMismatch(str(error)) from None
    async with aclosing(stored):
        actual = await asyncio.to_thread(_hash, stored)
    if actual != swept.digest:
        raise DigestMismatch(f"its bytes hash to {actual}")


async def _open(ctx: ServiceContext, swept: Swept) -> OpenObject:
    if not swept.is_inline:
        return await ctx.reader.open(swept.stored_id, swept.size)
    body = await ctx.database.read(read_body, swept.stored_id)
    return open_inline(body, swept.stored_id, swept.size)


def _hash(stored: OpenObject) -> str:
    hasher = new_hasher("sha256")
    for view in stored.chunks():
        hasher.update(view)
    return f"sha256:{hasher.hexdigest()}"


def _recover(
    tx: Connection, repository_id: str, swept: Swept, new_id: Callable[[], str], now: int
) -> None:
    account_id, digest = swept.account_id, swept.digest
    if not is_live(tx, repository_id):
        raise NameUnknown("the repository was deleted")
    if not collection.lock_recoverable(tx, account_id, swept.id):
        raise _unknown(digest)
    new = NewObject(*(getattr(swept, name) for name in NewObject._fields))
    kept = blobs.keep_object(tx, account_id, new, now)
    blobs.link_object(tx, repository_id, account_id, digest, kept.id, swept.size, now)
    if kept.stored_id == swept.stored_id:
        collection.take_keys(tx, account_id, swept.id)
    elif kept.damage is None:
        return  # the account has whole bytes, and these stay in quarantine
    else:
        switch_bytes(tx, account_id, kept.stored_id, new._replace(id=kept.id), new_id(), now)
    collection.release(tx, account_id, swept.id)


def _unknown(digest: str) -> BlobUnknown:
    return BlobUnknown(f"no blob {digest} is in quarantine", digest=digest)

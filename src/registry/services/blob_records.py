"""The rows that make stored bytes a blob, and what becomes of bytes the account has already.

The account keeps one object of equal bytes. The new ones were verified a moment ago; those that
are kept may have been damaged since. So they are looked at before the new ones are dropped:

- presence and size at every push;
- the hash, at no cost: when the kept bytes were not verified for `VERIFIED_FOR`, or are marked as
  damaged, the new ones take their place, in the transaction that links the blob.

That transaction decides by the file it finds under the object's lock, not by when it was looked
at: a file that nobody looked at is looked at first, and the transaction begins anew. Nothing of a
crash matters: a file is replaced by rows, after the new one is durable.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, NamedTuple

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.errors import Unavailable
from registry.blobstore.base import Stored
from registry.errors import NameUnknown, StoreUnavailable
from registry.metadata import blobs, damage, repositories, uploads
from registry.metadata.blobs import KeptObject, NewObject
from registry.services.context import Context
from registry.services.damage import find_damage

VERIFIED_FOR: Final = 7 * 24 * 3600 * MICROSECONDS
"""How long kept bytes are believed to hash to their digest, as long as they have their size."""

_log = logging.getLogger(__name__)


class _Seen(NamedTuple):
    """A kept file that was looked at, and what is wrong with it by its presence and size."""

    file_id: str
    damage: str | None


class _Kept(NamedTuple):
    """What the account keeps now."""

    file_id: str
    healed: str | None = None
    """The damage, not known before, that the new bytes have healed."""


class _NotSeenError(Exception):
    """The account keeps another file than the one that was looked at."""


async def record_blob(ctx: Context, repository_id: str, account_id: str, stored: Stored) -> None:
    """Write the rows that make stored bytes a blob; drop them when the account has the same.

    Raises:
        NameUnknown: the repository was deleted meanwhile.

    """
    kept = await _record(ctx, repository_id, account_id, stored)
    if kept is None:
        await asyncio.to_thread(ctx.writer.remove_duplicate, stored.object_id)
        raise NameUnknown("the repository was deleted meanwhile")
    if kept.healed is not None:
        ctx.on_damage()
        _log.error("blob %s was damaged (%s); a push has healed it", stored.digest, kept.healed)
    if kept.file_id != stored.object_id:
        await asyncio.to_thread(ctx.writer.remove_duplicate, stored.object_id)


async def _record(
    ctx: Context, repository_id: str, account_id: str, stored: Stored
) -> _Kept | None:
    while True:
        seen = await _look(ctx, account_id, stored)
        try:
            return await ctx.database.write(
                _record_rows, repository_id, account_id, stored, seen, ctx.clock()
            )
        except _NotSeenError:
            continue  # it was recorded a moment ago
        except Unavailable:
            # The connection may have died after the commit: what is there now tells.
            there = await ctx.database.read(blobs.linked_object, repository_id, stored.digest)
            is_ours = there is not None and there.file_id == stored.object_id
            if there is None or not (is_ours or _is_good(there, seen, ctx.clock())):
                raise
            # Removed is nothing: a commit that is still under way may need it. If not, the
            # search for orphans finds it.
            return _Kept(stored.object_id)


async def _look(ctx: Context, account_id: str, stored: Stored) -> _Seen | None:
    """Look at the file the account keeps of these bytes, if any."""
    file_id = await ctx.database.read(damage.kept_file, account_id, stored.digest)
    if file_id is None:
        return None
    try:
        found = await asyncio.to_thread(find_damage, ctx.reader, file_id, stored.size)
    except StoreUnavailable:
        found = damage.UNREADABLE
    return _Seen(file_id, found)


def _is_good(kept: KeptObject, seen: _Seen | None, now: int) -> bool:
    """Return whether the kept file is the one that was looked at, and may stay."""
    return seen == (kept.file_id, None) and not _must_go(kept, now)


def _must_go(kept: KeptObject, now: int) -> bool:
    """Return whether the kept bytes are to be replaced by verified ones without a look."""
    return kept.damage is not None or kept.verified_at + VERIFIED_FOR <= now


def _record_rows(
    tx: Connection,
    repository_id: str,
    account_id: str,
    stored: Stored,
    seen: _Seen | None,
    now: int,
) -> _Kept | None:
    """Return what the account keeps; None when the repository is gone."""
    if not repositories.is_live(tx, repository_id):
        return None
    new = NewObject(stored.object_id, stored.digest, stored.size, stored.stored_size, stored.layout)
    kept = blobs.keep_object(tx, account_id, new, now)
    result = _Kept(kept.file_id)
    if kept.file_id != new.id:
        is_seen = seen is not None and seen.file_id == kept.file_id
        found = seen.damage if seen is not None and is_seen else None
        if found is not None or _must_go(kept, now):
            damage.replace_file(tx, account_id, kept, new, now)
            result = _Kept(new.id, found if kept.damage is None else None)
        elif not is_seen:
            raise _NotSeenError
    blobs.link_object(tx, repository_id, account_id, stored.digest, kept.id, stored.size, now)
    if stored.alias is not None:
        blobs.add_alias(tx, account_id, stored.alias, stored.digest)
    uploads.remove_upload(tx, stored.object_id)
    return result

"""Find, open and check the blobs of a repository, and mark those that are damaged.

A sealed blob is read through the wrap of its link. If the KMS key of that wrap cannot be used, the
blob cannot be read; if the wrap itself does not open, the blob is unknown until it is pushed again.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

from cloudcore.db.base import Connection
from cloudcore.errors import Unavailable
from cloudcore.kms.vault import UsableKeys
from cloudcore.objects import damage
from cloudcore.objects.wraps import WrapBroken, WrappedKey
from cloudcore.serving.asgi import begin_stream
from registry import errors
from registry.blobstore.base import (
    PLAIN,
    DataKey,
    ObjectChanged,
    ObjectDamaged,
    ObjectUnknown,
    OpenObject,
)
from registry.blobstore.inline import check_inline, open_inline
from registry.metadata.blobs import objects as blobs
from registry.metadata.blobs.link_states import find_link_states
from registry.metadata.blobs.objects import BLOB_ROWS, Link
from registry.oci.digest import Digest
from registry.oci.reference import Name
from registry.services.blobs.damage import find_object_damage
from registry.services.blobs.links import get_link, unknown
from registry.services.context import ServiceContext
from registry.services.data_keys import DataKeys

T = TypeVar("T")

_log = logging.getLogger(__name__)
_LOOKS: Final = 3
"""Attempts to read a file while other requests replace it."""
_NEVER_VERIFIED: Final = 0


class FoundBlob(NamedTuple):
    """A blob of a repository that can be read."""

    link: Link
    data_key: DataKey | None
    """The key that opens the blob's bytes; None if they are plain."""
    opened_until: int | None = None
    """When the provider of the KMS key has to be asked again; None if the blob is plain."""


async def stat_blob(
    ctx: ServiceContext, name: Name, digest: Digest, *, keep: bool = False
) -> FoundBlob:
    """Return a blob of a repository that can be read.

    With `keep`, a client relies on the blob (HEAD before a push): check its file. If the link is
    unreferenced and was last touched long ago, also touch it, and commit that before the response.
    A referenced link is not touched here: the deletion of its last manifest touches it.

    Raises:
        BlobUnknown: the repository does not link the blob, even if the account has its bytes; the
            bytes or their data key are damaged, and a push will replace them; or the KMS key
            was deleted.
        KmsKeyDisabled: the KMS key is disabled, or its deletion is pending.
        NameUnknown: there is no such repository.
        Unavailable: the provider of the KMS key is unavailable.

    """
    link, usable = await ctx.database.read(_find_readable, ctx.data_keys, name, digest)
    if link.damage is not None and not await _is_back(ctx, link):
        raise _damaged(name, digest)
    data_key = await _open_data_key(ctx, name, link, usable)
    found = FoundBlob(link, data_key)
    if ctx.data_keys is not None and usable is not None:
        found = found._replace(opened_until=ctx.data_keys.opened_until(usable))
    if keep:
        await check_blob(ctx, name, found)
    if keep and not link.manifest_refs:
        now = ctx.clock()
        is_old = now - link.touched_at > _touch_after(ctx)
        if is_old and not await ctx.database.write(
            blobs.touch_link, link.repository_id, link.digest, now
        ):
            raise unknown(name, digest)
    return found


def read_blob_state(tx: Connection, name: Name, digest: Digest) -> Hashable:
    """Return everything that the response for an inline blob depends on; None if it is absent.

    While the result is unchanged, `stat_blob` and `open_blob` return the same until `kept_until`.
    """
    canonical = blobs.canonical_digest(tx, name.handle, digest)
    if canonical is None:
        return None
    return read_blob_states(tx, name, [Digest(canonical)]).get(canonical)


def read_blob_states(
    tx: Connection, name: Name, digests: Sequence[Digest]
) -> Mapping[Hashable, Hashable]:
    """Map sha256 digests to results of `read_blob_state`, omitting absent blobs."""
    return find_link_states(tx, name.handle, name.repository, [str(each) for each in digests])


def kept_until(ctx: ServiceContext, found: FoundBlob, *, keep: bool) -> int | None:
    """Return until when (µs since the epoch) a blob's response may be reused; None: no limit.

    Until then, the response is valid as long as `read_blob_state` returns the same. With `keep`,
    the time is no later than that of the link's next touch.
    """
    ends = [] if found.opened_until is None else [found.opened_until]
    if keep and not found.link.manifest_refs:
        ends.append(found.link.touched_at + _touch_after(ctx))
    return min(ends, default=None)


def _touch_after(ctx: ServiceContext) -> int:
    """Return how old a link's `touched_at` must be before a client's use updates it."""
    return min(ctx.limits.touch_after, ctx.delays.grace // 2)


async def open_blob(ctx: ServiceContext, name: Name, found: FoundBlob) -> OpenObject:
    """Open a blob; the caller closes it.

    Mark the bytes as damaged if they are absent, have another size than the blob, or were not
    sealed with its data key.

    Raise `BlobUnknown` if the bytes are damaged, or the link was removed meanwhile;
    `StoreUnavailable` if the store failed.
    """

    async def look(found: FoundBlob) -> OpenObject:
        link = found.link
        if link.is_inline:
            return open_inline(link.body, link.stored_id, link.size, found.data_key)
        return await ctx.reader.open(link.stored_id, link.size, found.data_key)

    return await _look(ctx, name, found, look)


async def link_to_blob(ctx: ServiceContext, name: Name, found: FoundBlob) -> str | None:
    """Return a URL at which a client can fetch a blob's bytes directly from the store, or None.

    Only plain bytes in the store have a URL; sealed ones must be decrypted here. Raise
    `BlobUnknown` or `StoreUnavailable` like `open_blob`.
    """
    links = ctx.links
    if links is None:
        return None

    async def look(found: FoundBlob) -> str | None:
        link = found.link
        if link.is_inline or link.encoding != PLAIN:
            return None
        known = links.known(link.stored_id)
        return known or await links.link(link.stored_id, link.stored_size)

    return await _look(ctx, name, found, look)


async def begin_range(
    ctx: ServiceContext, name: Name, found: FoundBlob, blob: OpenObject, start: int, stop: int
) -> AsyncIterator[bytes]:
    """Read the first part of a range of an open blob; return all parts of the range.

    So damage of a small blob is detected before the response begins. If this raises, the blob is
    closed. Raise `BlobUnknown` if the first part does not decrypt, after marking the bytes as
    damaged; `StoreUnavailable` if reading failed.
    """
    try:
        return await begin_stream(blob.stream(start, stop))
    except errors.StoreUnavailable as error:
        await blob.aclose()
        await check_after_failure(ctx, name, found, error)
        if isinstance(error, ObjectChanged):
            raise _damaged(name, found.link.digest) from None
        raise
    except BaseException:
        await blob.aclose()
        raise


async def check_blob(ctx: ServiceContext, name: Name, found: FoundBlob) -> None:
    """Check that the bytes of a blob exist and have their size; mark them as damaged if not.

    Raise `BlobUnknown` or `StoreUnavailable` like `open_blob`.
    """

    async def look(found: FoundBlob) -> None:
        link = found.link
        if link.is_inline:
            check_inline(link.body, link.stored_id, link.stored_size)
        else:
            await ctx.reader.check(link.stored_id, link.stored_size)

    link = found.link
    if link.is_inline or not ctx.reader.check_cached(link.stored_id, link.stored_size):
        await _look(ctx, name, found, look)


async def check_after_failure(
    ctx: ServiceContext, name: Name, found: FoundBlob, error: Exception
) -> None:
    """After `error` interrupted sending a blob, check its bytes, and mark them if damaged."""
    if isinstance(error, ObjectChanged):
        await note_damage(ctx, found.link, damage.DIGEST)
        return
    with suppress(
        errors.BlobUnknown, errors.NameUnknown, errors.KmsKeyDisabled, errors.StoreUnavailable
    ):
        await check_blob(ctx, name, found)


async def note_damage(ctx: ServiceContext, link: Link, found: str) -> bool:
    """Mark a link's object as damaged; count and log new damage.

    Return False if the object was already marked, has other bytes now, or is gone. If the database
    is unavailable, log that and return True. The mark has its own transaction, because only
    committed damage is counted and logged.
    """
    try:
        is_new = await ctx.database.write(
            BLOB_ROWS.mark, link.account_id, link.stored_id, link.verified_at, found, ctx.clock()
        )
    except Unavailable:
        _log.exception("blob %s is damaged (%s), and cannot be marked", link.digest, found)
        return True
    if is_new:
        ctx.on_damage()
        _log.error(
            "blob %s is damaged (%s): clients get 404 until it is pushed again. 'entrepot scrub' "
            "names the images it hits",
            link.digest,
            found,
        )
    return is_new


async def _look(
    ctx: ServiceContext, name: Name, found: FoundBlob, look: Callable[[FoundBlob], Awaitable[T]]
) -> T:
    """Return the result of `look`; if it finds damage, mark the bytes and raise `BlobUnknown`."""
    for _ in range(_LOOKS):
        try:
            return await look(found)
        except ObjectUnknown:
            kind = damage.ABSENT
        except ObjectDamaged:
            found_damage = await find_object_damage(ctx.reader, found.link, found.link.body)
            kind = found_damage or damage.DIGEST
        if await note_damage(ctx, found.link, kind):
            break
        # Another request has marked it, or a push has healed it, since the link was read.
        found = await stat_blob(ctx, name, Digest(found.link.digest))
    raise _damaged(name, found.link.digest)


async def _is_back(ctx: ServiceContext, link: Link) -> bool:
    """Remove the damage mark of a file that was absent or had a wrong size, and is intact now.

    That happens when a disk is mounted late or a backup is restored. Return False if the file is
    still damaged. Marks for a wrong hash or unreadable bytes are removed only by fsck and scrub.
    """
    if link.damage not in (damage.ABSENT, damage.SIZE):
        return False
    if await find_object_damage(ctx.reader, link, link.body) is not None:
        return False
    seen = link.account_id, link.stored_id, link.verified_at, link.damage
    await ctx.database.write(BLOB_ROWS.confirm, *seen, _NEVER_VERIFIED)
    return True


def _find_readable(
    tx: Connection, data_keys: DataKeys | None, name: Name, digest: Digest
) -> tuple[Link, UsableKeys | None]:
    """Return a blob's link and its KMS key; no key if the blob is plain or its wrap is broken."""
    link = get_link(tx, name, digest)
    if link.encoding == PLAIN:
        return link, None
    _check_key(name, link)
    if data_keys is None:
        raise errors.StoreUnavailable("the blob is sealed, and this process has no keys")
    try:
        return link, data_keys.usable_for(tx, link.account_id, [_wrap_of(link)])
    except errors.KmsKeyDeleted:
        raise _shredded(name, link) from None
    except WrapBroken:
        return link, None


def _check_key(name: Name, link: Link) -> None:
    """Check that the KMS key of a sealed blob's link can be used.

    Raise `BlobUnknown` if the key was deleted, `KmsKeyDisabled` if it is disabled or its deletion
    is pending.
    """
    if link.wrapped_data_key is None or link.key_state == "deleted":
        raise _shredded(name, link)
    if link.key_state != "enabled":
        raise errors.KmsKeyDisabled(
            f"the KMS key of blob {link.digest} in {name} is disabled, or its deletion is pending"
        )


def _wrap_of(link: Link) -> WrappedKey:
    assert link.kms_key_id is not None
    assert link.wrapped_data_key is not None
    return WrappedKey(link.kms_key_id, link.wrapped_data_key, link.stored_id)


async def _open_data_key(
    ctx: ServiceContext, name: Name, link: Link, usable: UsableKeys | None
) -> DataKey | None:
    if link.encoding == PLAIN:
        return None
    assert ctx.data_keys is not None
    if usable is not None:
        wrap = _wrap_of(link)
        with suppress(WrapBroken):
            return (await ctx.data_keys.open_under(link.account_id, usable, [wrap]))[0]
    ctx.broken_wraps.log(link)
    raise errors.BlobUnknown(
        f"the wrapped data key of blob {link.digest} in {name} is damaged; push it again",
        digest=link.digest,
    )


def _shredded(name: Name, link: Link) -> errors.BlobUnknown:
    return errors.BlobUnknown(
        f"the KMS key of blob {link.digest} in {name} was deleted; push the blob again",
        digest=link.digest,
        reason="kms_key_not_found",
    )


def _damaged(name: Name, digest: str) -> errors.BlobUnknown:
    return errors.BlobUnknown(
        f"the bytes of blob {digest} in {name} are damaged; push them again", digest=str(digest)
    )

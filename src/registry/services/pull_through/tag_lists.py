"""List the tags of cached repositories: those that the upstream has, and those that are here.

The upstream's list is told again for the rule's `tag_ttl_seconds`, and when it is stale, if the
upstream cannot be asked. It is asked before the first pull, too; that makes no repository.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final, NamedTuple

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection, ConstraintViolated
from cloudcore.errors import Unavailable
from registry.errors import NameUnknown
from registry.metadata.pull_through import lookups
from registry.metadata.pull_through import tag_lists as rows
from registry.metadata.pull_through.rules import CacheRule, find_rule_for
from registry.metadata.pull_through.tag_lists import KeptTags
from registry.oci.reference import Name
from registry.services.context import ServiceContext
from registry.services.pull_through.fetched_manifests import Way, way_to
from registry.services.pull_through.remote import as_error
from registry.services.repositories.names import NamePage
from registry.upstream.base import HiddenUpstream, NotUpstream, UpstreamFailed

_LOOK_SECONDS: Final = 15
"""For how long a client waits for the upstream when there is another answer."""
_ABSENT: Final = "tags/list"
"""The reference, which no tag can be, under which it is noted that the upstream has no list."""


class CachedTags(NamedTuple):
    """A page of the tags of a cached repository."""

    page: NamePage
    is_stale: bool
    """The upstream could not be asked."""
    checked_at: int | None
    """When the upstream sent its list, or None if it never did."""
    is_whole: bool
    """False if the upstream has more tags than are listed."""


class _Known(NamedTuple):
    rule: CacheRule | None
    kept: KeptTags | None
    is_absent: bool
    """The upstream has said a moment ago that it has none."""


async def list_cached_tags(
    ctx: ServiceContext, name: Name, after: str, limit: int, here: NamePage | NameUnknown
) -> CachedTags:
    """Return a page of tags that sort after `after`, given the same page of those that are `here`.

    Raises:
        NameUnknown: the error that is `here`, if neither the upstream lists the repository.
        Unavailable: the upstream gave no usable answer, and there is no other.

    """
    known = await ctx.database.read(_find, name, ctx.clock())
    kept, is_stale = known.kept, False
    way = way_to(ctx, known.rule, name)
    if way is not None and not known.is_absent and (not kept or ctx.clock() >= kept.fresh_until):
        has_other = kept is not None or isinstance(here, NamePage)
        try:
            async with asyncio.timeout(_LOOK_SECONDS if has_other else None):
                kept = await ctx.tag_list_fetches.join(
                    name.handle, way.remote.origin, name, lambda: _ask(ctx, way, name, kept)
                )
        except (UpstreamFailed, HiddenUpstream, Unavailable, TimeoutError) as failure:
            if kept is None and isinstance(here, NameUnknown):
                if isinstance(failure, HiddenUpstream):
                    raise here from None
                if isinstance(failure, UpstreamFailed):
                    raise as_error(failure, ctx.clock()) from None
                raise
            is_stale = True
        except NotUpstream:
            kept = None
    if kept is None:
        if isinstance(here, NameUnknown):
            raise here
        return CachedTags(here, is_stale, None, is_whole=True)
    page = _merged(kept, after, limit, here)
    return CachedTags(page, is_stale, kept.checked_at, kept.is_whole)


def _find(tx: Connection, name: Name, now: int) -> _Known:
    rule = find_rule_for(tx, name.handle, name.repository)
    if rule is None:
        return _Known(None, None, is_absent=False)
    return _Known(
        rule,
        rows.find_tags(tx, rule.id, name.repository),
        lookups.is_absent(tx, rule.id, name.repository, _ABSENT, now),
    )


async def _ask(ctx: ServiceContext, way: Way, name: Name, kept: KeptTags | None) -> KeptTags:
    """Fetch the upstream's list and store it.

    Raises:
        NotUpstream: it has none; the stored list is deleted, unless it is hidden now.

    """
    known = await ctx.database.read(_find, name, ctx.clock())
    if known.kept is not None and ctx.clock() < known.kept.fresh_until:
        return known.kept  # somebody was told it since the caller looked
    try:
        told = await way.upstream.list_tags(way.remote)
    except NotUpstream as missing:
        if kept is None or not isinstance(missing, HiddenUpstream):
            with suppress(ConstraintViolated, Unavailable):
                await ctx.database.write(_note_absence, way.rule, name, ctx.clock())
        raise
    now = ctx.clock()
    names = "\n".join(sorted(told.names)).encode()
    found = KeptTags(names, told.is_whole, now, now + way.rule.tag_ttl_seconds * MICROSECONDS)
    with suppress(ConstraintViolated, Unavailable):  # such as a full disk; it is told all the same
        await ctx.database.write(rows.keep_tags, way.rule.id, name.repository, found)
    return found


def _note_absence(tx: Connection, rule: CacheRule, name: Name, now: int) -> None:
    rows.remove_tags(tx, rule.id, name.repository)
    until = now + rule.negative_ttl_seconds * MICROSECONDS
    lookups.note_absence(tx, rule.id, name.repository, _ABSENT, until)


def _merged(kept: KeptTags, after: str, limit: int, here: NamePage | NameUnknown) -> NamePage:
    """Return one page of two, each of which has its first names after `after`."""
    of_both = set(kept.after(after, limit + 1))
    has_more = False
    if isinstance(here, NamePage):
        of_both.update(here.names)
        has_more = here.has_more
    names = sorted(of_both)
    return NamePage(names[:limit], has_more or len(names) > limit)

"""Find repositories and tags of an account by a part of their names; update the name index.

A request reads only one range of the index, and the few names that a worker has not indexed yet.
Both are bounded, and the result has the position at which the next page continues.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from heapq import merge
from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from registry.metadata.repositories import search_index
from registry.services.context import ServiceContext

EVERY_SECONDS: Final = 60
"""Interval in which new names are indexed, in seconds."""
MAX_UNSETTLED: Final = 10_000
"""The maximum number of names that a request reads besides the index."""
MAX_READ: Final = 2000
"""The maximum number of index entries that a request reads, whether they match or not."""
_PAGE: Final = 200
_BATCH: Final = 50
_IN_NAMES: Final = re.compile(r"[a-z0-9._/-]+")


class Findings(NamedTuple):
    """A page of matches: repositories before tags, each sorted by the text from the match on."""

    names: list[search_index.IndexedName]
    continue_after: search_index.MatchPosition | None
    """The position after which the next page begins; None if there are no more matches."""
    is_complete: bool
    """False if there were more new names than a request reads."""


def search_names(
    tx: Connection, account_id: str, text: str, after: search_index.MatchPosition | None, limit: int
) -> Findings:
    """Return up to `limit` names after a position that contain the text, ignoring case."""
    wanted = text.lower()
    if not _IN_NAMES.fullmatch(wanted):
        return Findings([], None, is_complete=True)
    # Read before the index, so that a name indexed in between is found twice, but never missed.
    unsettled, is_complete = search_index.list_unsettled(tx, account_id, wanted, MAX_UNSETTLED)
    waiting = [each for each in unsettled if after is None or each.position > after]
    found: list[search_index.IndexedName] = []
    last = after
    indexed = _read_index(tx, account_id, wanted, after)
    names = merge(waiting, indexed, key=lambda each: each.position)
    for read, each in enumerate(names):
        if len(found) == limit or read == MAX_READ:
            return Findings(found, last, is_complete)
        is_again = each.position == last
        last = each.position
        is_match = search_index.match(wanted, each.name) == each.position.characters
        if is_match and each.repository_id is not None and not is_again:
            found.append(each)
    return Findings(found, None, is_complete)


def _read_index(
    tx: Connection, account_id: str, text: str, after: search_index.MatchPosition | None
) -> Iterator[search_index.IndexedName]:
    for kind in search_index.KINDS:
        if after is not None and after.kind > kind:
            continue
        last = after if after is not None and after.kind == kind else None
        while True:
            rows = search_index.list_matches(tx, account_id, kind, text, last, _PAGE)
            yield from rows
            if len(rows) < _PAGE:
                break
            last = rows[-1].position


async def index_names(ctx: ServiceContext) -> None:
    """Index all new names and remove deleted ones, in batches of one transaction each."""
    while await ctx.database.write_relaxed(search_index.settle_batch, _BATCH) == _BATCH:
        pass

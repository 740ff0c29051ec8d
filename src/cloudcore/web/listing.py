"""Read one page of a list, with its total, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, TypeVarTuple

from cloudcore.db.base import Connection
from cloudcore.web.context import RequestContext
from cloudcore.web.pagination import PageMeta, PageQuery

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


async def read_page(
    ctx: RequestContext,
    query: PageQuery,
    rows: Callable[[Connection, *Ts, str, int], Sequence[T]],
    count: Callable[[Connection, *Ts], int],
    *within: *Ts,
    key: Callable[[T], str],
) -> tuple[Sequence[T], PageMeta]:
    """Return the page of a list that `query` requests, and its meta; `key` is the sort key."""
    pager = ctx.pager(query, *map(str, within))
    (after,) = pager.position or ("",)

    def read(tx: Connection) -> tuple[Sequence[T], int]:
        return rows(tx, *within, after, pager.wanted), count(tx, *within)

    found, total = await ctx.database.read(read)
    return pager.cut(found, total, lambda row: (key(row),))

"""Read one page of a list of identity that a name filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from cloudcore.identity.rows.owned import Owned, OwnedRows
from cloudcore.web.context import RequestContext
from cloudcore.web.listing import read_page
from cloudcore.web.pagination import NamedPageQuery, PageMeta

T = TypeVar("T", bound=Owned)


async def read_named(
    ctx: RequestContext, rows: OwnedRows[T], owner_id: str
) -> tuple[Sequence[T], PageMeta]:
    """Return the page of an owner's that a request asks for, by name, and its meta."""
    query = ctx.query(NamedPageQuery)
    of = owner_id, query.name or ""
    return await read_page(ctx, query, rows.list, rows.count, *of, key=lambda each: each.name)

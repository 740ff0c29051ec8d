"""What the account held on each day, how often it was pulled, what grew, and what is stale."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import msgspec
from litestar import get
from litestar.di import NamedDependency
from msgspec import Meta

from cloudcore.web.context import RequestContext
from cloudcore.web.pagination import PageQuery
from cloudcore.web.references import ResourceRef
from cloudcore.wire import ResponseBody
from registry.control.repositories import (
    ManyRepositories,
    authorized_for_all,
    reference_of,
    repository_answer,
)
from registry.metadata.repositories.days import DAY
from registry.metadata.repositories.stale import LastUse
from registry.services.repositories.days import AccountHistory, list_stale, read_history

_MOST: Final = 20
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class HistoryQuery(msgspec.Struct):
    """The days to return."""

    days: Annotated[int, Meta(ge=1, le=366)] = 30
    """The number of days until today."""


class StaleQuery(PageQuery):
    """Which repositories are stale."""

    days: Annotated[int, Meta(ge=1, le=3660)] = 90
    """Neither pushed to nor pulled from for that many days."""


class DayAnswer(ResponseBody):
    """One day, in UTC."""

    day: str
    """As ``2026-01-31``."""
    size_bytes: int
    """Sum of the sizes of its repositories, as last measured on that day."""
    pulls: int
    """Manifests that were pulled, but for pullers that do not count."""


class GrowthAnswer(ResponseBody):
    """How the size of a repository has changed."""

    repository: ResourceRef
    size_bytes_before: int
    """On its first day of the span with a measurement; 0 if it did not exist."""
    size_bytes: int
    """When it was last measured; that is every six hours."""


class StorageHistory(ResponseBody):
    """The days that were recorded, oldest first, and the 20 repositories that changed most."""

    days: Sequence[DayAnswer]
    growth_days: int
    """The days over which repositories are compared: the least of 7, 30, 90 and 366 that is not
    below `days`."""
    repositories: Sequence[GrowthAnswer]


class OneStorageHistory(ResponseBody):
    """A storage history, wrapped."""

    storage_history: StorageHistory


@get(
    "/v1/storage-usage/history",
    opt={"action": "registry:DescribeStorageUsage", "query": HistoryQuery},
)
async def get_storage_history(ctx: NamedDependency[RequestContext]) -> OneStorageHistory:
    """Return the account's storage and pulls by day, and what grew; kept for 400 days."""
    account_id = authorized_for_all(ctx)
    days = ctx.query(HistoryQuery).days
    found = await ctx.database.read(read_history, account_id, ctx.clock(), days, _MOST)
    return OneStorageHistory(storage_history=_answer(ctx, account_id, found))


@get(
    "/v1/repositories/stale",
    opt={"action": "registry:DescribeRepositories", "query": StaleQuery},
)
async def list_stale_repositories(ctx: NamedDependency[RequestContext]) -> ManyRepositories:
    """List the repositories that hold bytes and were not used lately, the longest unused first.

    Use is a push or a pull. Repositories are measured every six hours; one that was used since is
    left out, so a page may be short and not the last.
    """
    account_id = authorized_for_all(ctx)
    query = ctx.query(StaleQuery)
    pager = ctx.pager(query)
    after = None if pager.position is None else LastUse(*pager.position)
    before = ctx.clock() - query.days * DAY
    found = await ctx.database.read(list_stale, account_id, before, after, pager.wanted)
    cut, meta = pager.cut(found.uses, found.total, key=tuple)
    shown = (found.repositories.get(each.repository_id) for each in cut)
    return ManyRepositories(
        repositories=[repository_answer(ctx, each) for each in shown if each is not None],
        meta=meta,
    )


def _answer(ctx: RequestContext, account_id: str, found: AccountHistory) -> StorageHistory:
    return StorageHistory(
        days=[
            DayAnswer(
                day=f"{_EPOCH + timedelta(days=each.day):%Y-%m-%d}",
                size_bytes=each.size_bytes,
                pulls=each.pulls,
            )
            for each in found.days
        ],
        growth_days=found.growth_days,
        repositories=[
            GrowthAnswer(
                repository=reference_of(ctx, account_id, each.repository_id, each.name),
                size_bytes_before=each.before,
                size_bytes=each.size_bytes,
            )
            for each in found.growth
        ],
    )

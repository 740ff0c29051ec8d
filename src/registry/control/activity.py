"""``/v1/storage-usage/history``: what the account held on each day, and how often it was pulled."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import msgspec
from litestar import get
from litestar.di import NamedDependency
from msgspec import Meta

from cloudcore.web.callers import account_of
from cloudcore.web.context import RequestContext
from cloudcore.web.references import ResourceRef
from cloudcore.wire import ResponseBody
from registry.services.access import repository_crn
from registry.services.repositories.days import AccountHistory, read_history

_MOST: Final = 20
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class HistoryQuery(msgspec.Struct):
    """The days to return."""

    days: Annotated[int, Meta(ge=1, le=366)] = 30
    """The number of days until today."""


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
    """On the first day with a measurement; 0 if it did not exist."""
    size_bytes: int
    """On the last day."""


class StorageHistory(ResponseBody):
    """The days that were recorded, oldest first, and the 20 repositories that changed most."""

    days: Sequence[DayAnswer]
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
    account_id = account_of(ctx)
    ctx.authorize(repository_crn(ctx.settings.region, account_id, "*"))
    days = ctx.query(HistoryQuery).days
    found = await ctx.database.read(read_history, account_id, ctx.clock(), days, _MOST)
    return OneStorageHistory(storage_history=_answer(ctx, account_id, found))


def _answer(ctx: RequestContext, account_id: str, found: AccountHistory) -> StorageHistory:
    region = ctx.settings.region
    return StorageHistory(
        days=[
            DayAnswer(
                day=f"{_EPOCH + timedelta(days=each.day):%Y-%m-%d}",
                size_bytes=each.size_bytes,
                pulls=each.pulls,
            )
            for each in found.days
        ],
        repositories=[
            GrowthAnswer(
                repository=ResourceRef(
                    id=each.repository.id,
                    crn=repository_crn(region, account_id, each.repository.name),
                    name=each.repository.name,
                ),
                size_bytes_before=each.before,
                size_bytes=each.repository.size_bytes,
            )
            for each in found.growth
        ],
    )


HANDLERS: Final = (get_storage_history,)

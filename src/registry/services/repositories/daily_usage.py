"""Record the sizes of repositories each day, compare days, and list stale repositories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from cloudcore.db.base import Connection, Database
from cloudcore.web.bodies import ResourceRef
from cloudcore.wire import ResponseBody
from registry.metadata.repositories import daily_usage as rows
from registry.metadata.repositories.details import RepositoryDetails
from registry.metadata.repositories.stale import LastUse, count_stale, find_stale, list_last_uses
from registry.services.access.decisions import repository_reference
from registry.services.context import ServiceContext

EVERY_SECONDS: Final = 6 * 3600
"""Seconds between two measurements."""
_ACCOUNTS: Final = 500
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


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


class StalePage(NamedTuple):
    """A page of stale repositories, and their number on all pages."""

    uses: list[LastUse]
    repositories: dict[str, RepositoryDetails]
    """The repositories by id, without those that were used or deleted since the last measurement.
    """
    total: int


async def measure_repositories(ctx: ServiceContext) -> None:
    """Record today's size of all repositories, in batches of one transaction each."""
    await measure_day(ctx.database, ctx.clock() // rows.DAY)


async def measure_day(database: Database, day: int) -> None:
    """Write the sizes of all repositories and accounts on a day; measure growth and last uses."""
    sums: Counter[str] = Counter()
    after = ""
    while (measured := await database.write_relaxed(rows.measure_batch, day, after)) is not None:
        after = measured.last
        sums.update(measured.sums)
    accounts = sorted(sums)
    for start in range(0, len(accounts), _ACCOUNTS):
        batch = {each: sums[each] for each in accounts[start : start + _ACCOUNTS]}
        await database.write_relaxed(rows.measure_accounts, day, batch)


def read_history(
    tx: Connection, account_id: str, region: str, now: int, days: int, most: int
) -> StorageHistory:
    """Return the last `days` of an account, and the `most` repositories that changed most.

    Growth is over the shortest of `SPANS` that covers these days, as last measured.
    """
    today = now // rows.DAY
    span = next((each for each in rows.SPANS if each >= days), rows.SPANS[-1])
    return StorageHistory(
        days=[
            DayAnswer(
                day=f"{_EPOCH + timedelta(days=each.day):%Y-%m-%d}",
                size_bytes=each.size_bytes,
                pulls=each.pulls,
            )
            for each in rows.list_account_days(tx, account_id, today - days + 1, today)
        ],
        growth_days=span,
        repositories=[
            GrowthAnswer(
                repository=repository_reference(region, account_id, each.repository_id, each.name),
                size_bytes_before=each.before,
                size_bytes=each.size_bytes,
            )
            for each in rows.list_growth(tx, account_id, span, most)
        ],
    )


def list_stale(
    tx: Connection, account_id: str, before: int, after: LastUse | None, limit: int
) -> StalePage:
    """Return a page of repositories that have bytes and were not used since `before`.

    The longest unused come first; `after` is the last use on the previous page.
    """
    uses = list_last_uses(tx, account_id, before, after, limit)
    found = (find_stale(tx, account_id, each.repository_id, before) for each in uses)
    return StalePage(
        uses,
        {each.id: each for each in found if each is not None},
        count_stale(tx, account_id, before),
    )

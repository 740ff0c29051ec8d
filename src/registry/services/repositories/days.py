"""Record what repositories hold each day, and compare days."""

from __future__ import annotations

from typing import NamedTuple

from cloudcore.db.base import Connection
from registry.metadata.repositories.days import (
    DAY,
    AccountDay,
    SizeOnDay,
    list_account_days,
    measure_batch,
    sizes_on,
)
from registry.services.context import ServiceContext


class Growth(NamedTuple):
    """How a repository has grown; `before` is 0 if it did not exist."""

    repository: SizeOnDay
    before: int


class AccountHistory(NamedTuple):
    """The days of an account, and the repositories whose sizes changed most."""

    days: list[AccountDay]
    growth: list[Growth]


async def measure_repositories(ctx: ServiceContext) -> None:
    """Record the sizes of all repositories for this day, in batches of one transaction each."""
    day = ctx.clock() // DAY
    after: str | None = ""
    while after is not None:
        after = await ctx.database.write_relaxed(measure_batch, day, after)


def read_history(tx: Connection, account_id: str, now: int, days: int, most: int) -> AccountHistory:
    """Return the last `days` of an account, and the `most` repositories that changed most.

    They are compared between the first and the last day that were recorded.
    """
    today = now // DAY
    found = list_account_days(tx, account_id, today - days + 1, today)
    if len(found) < 2:
        return AccountHistory(found, [])
    before = {each.id: each.size_bytes for each in sizes_on(tx, account_id, found[0].day)}
    grown = [
        Growth(each, before.get(each.id, 0)) for each in sizes_on(tx, account_id, found[-1].day)
    ]
    changed = [each for each in grown if each.repository.size_bytes != each.before]
    changed.sort(key=lambda each: (-abs(each.repository.size_bytes - each.before), each.repository))
    return AccountHistory(found, changed[:most])

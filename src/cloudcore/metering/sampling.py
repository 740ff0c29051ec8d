"""Sample the stored amounts of accounts for each hour, even hours in which no process ran.

An hour is sampled after it has ended, with the amounts stored at the time of sampling. Each SKU has
a row for every sampled hour, so no hour is counted twice by concurrent samplers, or after the clock
was set back. The sums of a sampled SKU are set, not added to, so the work of a sampler that died
can be repeated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from typing import Final

import sqlalchemy as sa

from cloudcore.clock import Clock
from cloudcore.db.base import Connection, Database
from cloudcore.db.rows import deletion, given, insert_new, insert_or_change
from cloudcore.db.statement import Statement
from cloudcore.metering.usage import HOUR, KEPT_HOURS, SkuUse, usage_hours, usage_samples
from cloudcore.ports import Port

EVERY_SECONDS: Final = 600
"""Shorter than an hour, so that an hour whose sampling failed is sampled soon after."""
MOST_HOURS: Final = 31 * 24
"""Maximum missed hours that are sampled: no more are billed if the clock is set to a later year."""
_BATCH: Final = 500
"""Maximum number of accounts in one transaction."""

Measure = Callable[[Database], Awaitable[Mapping[str, int]]]
"""Returns what accounts store now, by account id, in the SKU's smallest unit for one hour."""


def sums_by_account(tx: Connection, statement: Statement) -> dict[str, int]:
    """Return the rows of a query, an account id and a sum each, as a mapping."""
    return {account_id: int(found) for account_id, found in tx.rows(statement)}


def measure_of(statement: Statement) -> Measure:
    """Return the measure for a query whose rows are an account id and a sum each."""
    return lambda database: database.read(sums_by_account, statement)


SAMPLES: Final[Port[Mapping[str, Measure]]] = Port("metering.samples")
"""Maps the name of each sampled SKU to its measure."""

_s = usage_samples.c
_SAMPLED: Final = Statement(
    sa.select(_s.hour).where(
        given(_s.sku), _s.hour >= sa.bindparam("first"), _s.hour < sa.bindparam("end")
    )
)
_FIRST: Final = Statement(sa.select(sa.func.min(_s.hour)).where(given(_s.sku)))
_DONE: Final = Statement(insert_new(usage_samples, ("sku", "hour")))
_SET: Final = Statement(
    insert_or_change(usage_hours, ("account_id", "hour", "sku", "region", "quantity"))
)
forget_samples: Final = deletion(_s.hour, kept_seconds=KEPT_HOURS * 3600, unit=HOUR)
"""Deletes a batch of the sampled hours older than `KEPT_HOURS`."""


async def sample(
    database: Database, clock: Clock, region: str, samples: Mapping[str, Measure]
) -> None:
    """Store the current amounts as those of all hours that have ended and are not yet sampled."""
    for sku, measure in samples.items():
        if hours := await database.write_relaxed(_due, sku, clock() // HOUR):
            stored = await measure(database)
            await _sample_hours(database, region, sku, hours, stored)


async def _sample_hours(
    database: Database, region: str, sku: str, hours: Sequence[int], stored: Mapping[str, int]
) -> None:
    for hour in hours:
        accounts = iter(sorted(stored.items()))
        while batch := tuple(islice(accounts, _BATCH)):
            await database.write_relaxed(_put, region, sku, hour, batch)
        await database.write_relaxed(_end, sku, hour)


def _due(tx: Connection, sku: str, end: int) -> list[int]:
    """Return the hours before `end` to sample; a new SKU is first sampled for the hour `end`."""
    row = tx.row(_FIRST, sku=sku)
    # Or the clock was ahead when the SKU was first sampled.
    if row is None or row[0] is None or row[0] >= end:
        _end(tx, sku, end - 1)
        return []
    first = max(row[0], end - MOST_HOURS)
    done = {found[0] for found in tx.rows(_SAMPLED, sku=sku, first=first, end=end)}
    return [hour for hour in range(first, end) if hour not in done]


def _put(
    tx: Connection, region: str, sku: str, hour: int, stored: Sequence[tuple[str, int]]
) -> None:
    """Set the amounts of accounts for an hour; sort them, so that samplers cannot deadlock."""
    for account_id, quantity in stored:
        if quantity:
            use = SkuUse(account_id, region, sku, hour)
            tx.execute(_SET, **use._asdict(), quantity=quantity)


def _end(tx: Connection, sku: str, hour: int) -> None:
    tx.execute(_DONE, sku=sku, hour=hour)

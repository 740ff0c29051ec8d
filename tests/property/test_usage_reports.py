"""Reports of use, late and at once, sum to what an independent count says."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from contextlib import suppress
from typing import Final, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloudcore.db.base import Connection, Database
from cloudcore.metering.usage import HOUR, report
from tests.databases import on_both_databases, with_database
from tests.soak import times
from tests.used_hours import HourOfUse, usage

FIRST: Final = 400_000
HOURS: Final = 3
REGIONS: Final = ("here", "there")
SKUS: Final = ("queue.requests", "registry.storage")


class Told(NamedTuple):
    """One report, which may not be committed."""

    account: int
    region: str
    sku: str
    quantity: int
    at: int
    is_undone: bool


class Undone(Exception):
    """The use was rolled back, and its report with it."""


REPORTS: Final = st.builds(
    Told,
    account=st.integers(0, 1),
    region=st.sampled_from(REGIONS),
    sku=st.sampled_from(SKUS),
    quantity=st.one_of(st.integers(0, 3), st.integers(0, 1 << 53)),
    at=st.one_of(
        st.integers(FIRST * HOUR, (FIRST + HOURS) * HOUR - 1),
        # The first and the last microsecond of an hour.
        st.builds(
            lambda hour, last: (FIRST + hour) * HOUR + (HOUR - 1) * last,
            st.integers(0, HOURS - 1),
            st.integers(0, 1),
        ),
    ),
    is_undone=st.booleans(),
)


@on_both_databases
@settings(
    max_examples=times(10),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(told=st.lists(REPORTS, max_size=24))
def test_reports_sum_exactly(metadata_url: str, told: list[Told]) -> None:
    accounts = (str(uuid.uuid4()), str(uuid.uuid4()))

    def change(tx: Connection, each: Told) -> None:
        report(tx, accounts[each.account], each.region, each.sku, each.quantity, each.at)
        if each.is_undone:
            raise Undone

    async def tell(database: Database, each: Told) -> None:
        with suppress(Undone):
            await database.write(change, each)

    async def play(database: Database) -> list[list[HourOfUse]]:
        await asyncio.gather(*(tell(database, each) for each in told))
        found = []
        for account in accounts:
            hours = (FIRST, FIRST + HOURS)
            found.append(await database.read(usage, account, *hours))
            assert await database.read(usage, account, 0, FIRST) == []
        return found

    found = with_database(metadata_url, play)
    sums: Counter[tuple[int, str, str, int]] = Counter()
    for each in told:
        if not each.is_undone:
            sums[each.account, each.region, each.sku, each.at // 3_600_000_000] += each.quantity
    assert {
        (account, *row[:3]): row.quantity for account, rows in enumerate(found) for row in rows
    } == {place: total for place, total in sums.items() if total}

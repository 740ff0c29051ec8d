"""The collector beside everything else on PostgreSQL, in orders of single statements.

Transactions are open at the same time here and wait for each other's locks, which SQLite's never
do. ``COLLECTOR_STATEMENT_RUNS`` says how many orders are tried, ``COLLECTOR_SEED`` where to begin.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Final

import pytest

from registry.settings.groups import Limits
from tests.property.collector_runs import SEED, run
from tests.property.collector_world import Yard
from tests.property.interleaving import no_other_threads
from tests.property.locked_statements import StatementDatabase
from tests.soak import time_limit, times

RUNS: Final = int(os.environ.get("COLLECTOR_STATEMENT_RUNS", times(30)))
WAITS: Final = "waits for a lock"
AT_ONCE: Final = "WITH target AS"
ENOUGH: Final = 30
"""Of so many it can be told whether they were a test."""

pytestmark = [pytest.mark.postgresql, time_limit(120)]


@pytest.fixture
def database(postgresql_database: str) -> Iterator[StatementDatabase]:
    """Return a database without content."""
    opened = StatementDatabase(postgresql_database)
    with no_other_threads():
        yield opened
    asyncio.run(opened.close())


def test_no_order_of_statements_loses_or_leaks_anything(database: StatementDatabase) -> None:
    yard = Yard(database)
    waits = 0
    for seed in range(SEED, SEED + RUNS):
        run(yard, seed)
        waits += sum(WAITS in step for step in yard.interleaving.trace)
    if RUNS >= ENOUGH:
        assert waits > RUNS // 2, "they hardly met"
        assert all(yard.tally[what] for what in ("pushed", "swept")), yard.tally


def test_small_blobs_that_are_written_at_once_are_neither_lost_nor_leaked(
    database: StatementDatabase,
) -> None:
    yard = Yard(database, limits=Limits())
    at_once = 0
    for seed in range(SEED, SEED + RUNS // 2):
        run(yard, seed)
        at_once += sum(AT_ONCE in step for step in yard.interleaving.trace)
    assert yard.tally["inline"] > 0
    assert at_once > 0

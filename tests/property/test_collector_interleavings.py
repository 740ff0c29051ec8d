"""The collector beside everything else, in orders that chance draws, with no delay at all.

A step is a call to the database or to the store, and a statement of a query. ``COLLECTOR_RUNS``
says how many orders are tried, ``COLLECTOR_SEED`` where to begin; a failure names its seed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from registry.settings.groups import Delays, Limits
from tests.property.collector_clients import PROMISED
from tests.property.collector_runs import SEED, run
from tests.property.collector_world import Yard
from tests.property.interleaved_stores import OneConnection
from tests.property.interleaving import no_other_threads
from tests.soak import time_limit, times

RUNS: Final = int(os.environ.get("COLLECTOR_RUNS", times(240)))
TALLIED: Final = (
    *("pushed", "refused", "restored", "recovered", "swept"),
    *("switched", "orphans", "shredded", "counted", "full"),
)
"""What must happen now and then, or the runs are no test."""
ENOUGH: Final = 240
"""Of fewer runs, nothing need happen. Some of it is rare: then it takes more of them."""
MOST: Final = 1000


@pytest.fixture
def database(migrated_file: Path) -> Iterator[OneConnection]:
    """Return a database without content."""
    opened = OneConnection(migrated_file)
    with no_other_threads():
        yield opened
    opened.raw.close()


LONG: Final = time_limit(300)


@LONG
def test_no_order_loses_or_leaks_anything(database: OneConnection) -> None:
    yard = Yard(database)
    for number in range(max(RUNS, MOST)):
        if number >= RUNS and (RUNS < ENOUGH or all(yard.tally[what] for what in TALLIED)):
            return
        run(yard, SEED + number)
    assert all(yard.tally[what] for what in TALLIED), yard.tally


@LONG
def test_inline_objects_are_neither_lost_nor_leaked(database: OneConnection) -> None:
    yard = Yard(database, limits=Limits())
    for seed in range(SEED, SEED + RUNS // 2):
        run(yard, seed)
    assert yard.tally["inline"] > 0


@LONG
def test_who_was_told_of_a_blob_can_use_it_for_the_grace(database: OneConnection) -> None:
    """A grace is no safety, but a promise: no push fails for want of what was there."""
    delays = Delays(gc_condemned_seconds=0, gc_quarantine_seconds=0)
    yard = Yard(database, delays)
    for seed in range(SEED, SEED + RUNS // 2):
        run(yard, seed, PROMISED)
    assert yard.tally["refused"] == 0

"""The collector beside everything else, in orders that chance draws, with no delay at all (G4).

A step is a call to the database or to the store, and a statement of a query. ``COLLECTOR_RUNS``
says how many orders are tried, ``COLLECTOR_SEED`` where to begin; a failure names its seed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from registry.settings import Delays
from tests.property.collector_clients import PROMISED, SCENES, Client, Scene
from tests.property.collector_world import Yard
from tests.property.interleaved_stores import OneConnection
from tests.property.interleaving import no_other_threads
from tests.soak import FACTOR, time_limit

RUNS: Final = int(os.environ.get("COLLECTOR_RUNS", 800 * FACTOR))
SEED: Final = int(os.environ.get("COLLECTOR_SEED", "0"))
DEADLY: Final = 0.25
"""How often one of the tasks dies."""
TALLIED: Final = ("pushed", "refused", "restored", "recovered", "swept", "orphans")
"""What must happen now and then, or the runs are no test."""
ENOUGH: Final = 500


@pytest.fixture
def database(migrated_file: Path) -> Iterator[OneConnection]:
    """Return a database without content."""
    opened = OneConnection(migrated_file)
    with no_other_threads():
        yield opened
    opened.raw.close()


Task = tuple[str, Callable[[], None], int | None]


def tasks_of(yard: Yard, scene: Scene, rng: random.Random) -> list[Task]:
    """Return who takes part in a run: the collector, and those of the scene."""
    works: list[tuple[str, Callable[[], None]]] = [("collector", yard.collect)]
    for number, acts in enumerate(scene.tasks):
        client = Client(yard, rng.getrandbits(32))
        works.append((f"client {number}", partial(client.work, acts, rng.randint(1, 3))))
    victim = rng.randrange(len(works)) if rng.random() < DEADLY else None
    return [
        (name, work, rng.randint(1, 40) if number == victim else None)
        for number, (name, work) in enumerate(works)
    ]


def run(yard: Yard, seed: int, scenes: Sequence[Scene] = SCENES) -> None:
    """Play one run: something that is there, then everything at once."""
    rng = random.Random(seed)
    yard.open(seed)
    try:
        scene = rng.choice(scenes)
        first = Client(yard, rng.getrandbits(32))
        first.prepare(scene.before)
        yard.play(tasks_of(yard, scene, rng))
    except BaseException as error:
        steps = "\n".join(yard.interleaving.trace[-200:])
        error.add_note(f"COLLECTOR_SEED={seed} COLLECTOR_RUNS=1\n{steps}")
        raise
    finally:
        yard.close()


LONG: Final = time_limit(120)


@LONG
def test_no_order_loses_or_leaks_anything(database: OneConnection) -> None:
    yard = Yard(database)
    for seed in range(SEED, SEED + RUNS):
        run(yard, seed)
    if RUNS >= ENOUGH:
        assert all(yard.tally[what] for what in TALLIED), yard.tally


@LONG
def test_who_was_told_of_a_blob_can_use_it_for_the_grace(database: OneConnection) -> None:
    """A grace is no safety, but a promise: no push fails for want of what was there."""
    delays = Delays(gc_condemned_seconds=0, gc_quarantine_seconds=0)
    yard = Yard(database, delays)
    for seed in range(SEED, SEED + RUNS // 2):
        run(yard, seed, PROMISED)
    assert yard.tally["refused"] == 0

"""One run of the collector beside clients, in an order that a seed draws."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from tests.property.collector_clients import SCENES, Client, Scene
from tests.property.collector_world import Yard

SEED: Final = int(os.environ.get("COLLECTOR_SEED", "0"))
DEADLY: Final = 0.25
"""How often one of the tasks dies."""
Task = tuple[str, Callable[[], None], int | None]


def tasks_of(yard: Yard, scene: Scene, rng: random.Random) -> list[Task]:
    """Return who takes part in a run: the collector, and those of the scene."""
    works: list[tuple[str, Callable[[], None]]] = [("collector", yard.collect)]
    for number, steps in enumerate(scene.tasks):
        client = Client(yard, rng.getrandbits(32))
        works.append((f"client {number}", partial(client.work, steps, rng.randint(1, 3))))
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

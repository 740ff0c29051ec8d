"""How many times the work of ``make test`` the tests do that draw at random.

``make soak`` sets ``SOAK`` to some fifteen. Above one they also draw anew each time, in place of
what a seed in the source gives; ``SOAK_SEED`` repeats it. ``make test-fast`` sets ``SOAK`` to a
fraction.
"""

from __future__ import annotations

import os
import random
from typing import Final

import pytest

FACTOR: Final = float(os.environ.get("SOAK", "1"))
IS_SOAK: Final = FACTOR > 1
SEED: Final = os.environ.get("SOAK_SEED") or str(random.SystemRandom().randrange(1 << 32))


def times(count: int) -> int:
    """Return how many of the usual `count` are to be done: `FACTOR` times as many, at least one."""
    return max(1, round(count * FACTOR))


def drawing(seed: int | str) -> random.Random:
    """Return a generator of this seed, or with ``SOAK`` above one of `SEED` too."""
    return random.Random(f"{seed} {SEED}" if IS_SOAK else seed)


def time_limit(seconds: int) -> pytest.MarkDecorator:
    """Return the time limit of a test that does `FACTOR` times its usual work."""
    return pytest.mark.timeout(seconds * max(1, FACTOR))

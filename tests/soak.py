"""How many times the work of ``make test`` the tests do that draw at random.

``make soak`` sets ``SOAK`` to some fifteen. Where it is set they also draw anew each time, in
place of what a seed in the source gives.
"""

from __future__ import annotations

import os
from typing import Final

import pytest

FACTOR: Final = int(os.environ.get("SOAK", "1"))
IS_SOAK: Final = FACTOR > 1


def time_limit(seconds: int) -> pytest.MarkDecorator:
    """Return the time limit of a test that does `FACTOR` times its usual work."""
    return pytest.mark.timeout(seconds * FACTOR)

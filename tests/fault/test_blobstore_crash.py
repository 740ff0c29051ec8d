"""SIGKILL at every file operation of an upload: what was acknowledged is there, and right.

``SOAK=20`` in the environment makes twenty times as many runs, each with some 70 kills.
"""

from __future__ import annotations

import pytest

from tests.fault.small_process import run_small
from tests.fault.upload_kills import KEYS
from tests.soak import times

SEEDS = times(2)


@pytest.mark.timeout(120 + 60 * SEEDS)
@pytest.mark.parametrize("key", KEYS)
def test_a_kill_at_any_operation_loses_nothing_acknowledged(key: str) -> None:
    run_small("tests.fault.upload_kills", key, str(SEEDS))

"""Runs that a registry carries out in the background, watched until they have ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from registry.cli.api import ApiClient, Record
from registry.cli.progress import progress

_SLOWEST: Final = 2.0
"""Seconds between two looks at a run."""


def await_run(client: ApiClient, path: str, run: Record, words: Callable[[Record], str]) -> Record:
    """Return a run below `path` as it is when it has ended; `words` say how far it has come."""
    pause = 0.1
    with progress() as show:
        while run["status"] == "running":
            show(words(run))
            time.sleep(pause)
            pause = min(pause * 1.5, _SLOWEST)
            run = client.call("GET", f"{path}/{run['id']}")["run"]
    return run

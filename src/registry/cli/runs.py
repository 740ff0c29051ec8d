"""Wait for a background run of the registry; show its progress, and how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from registry.cli.api import ApiClient, Record
from registry.cli.failure import CommandFailure
from registry.cli.output import echo, text_of
from registry.cli.progress import progress

_SLOWEST: Final = 2.0
"""Maximum pause between two requests, in seconds."""


def await_run(client: ApiClient, path: str, run: Record, words: Callable[[Record], str]) -> Record:
    """Poll a run under `path` until it has ended, and return it; `words` formats its progress."""
    pause = 0.1
    with progress() as show:
        while run["status"] == "running":
            show(words(run))
            time.sleep(pause)
            pause = min(pause * 1.5, _SLOWEST)
            run = client.call("GET", f"{path}/{run['id']}")["run"]
    return run


def write_ended(run: Record, words: str, form: str) -> None:
    """Print how a run has ended, with `words` on what it did.

    Raises:
        CommandFailure: it failed.

    """
    echo(f"{run['status'].capitalize()}: {words}", form, run)
    if run["status"] == "failed":
        raise CommandFailure(f"the run failed: {text_of(run['fault'])}")

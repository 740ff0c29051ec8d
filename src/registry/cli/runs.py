"""Wait for a background run of the registry; show its progress, and how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from cloudcore.command_line import Cell, Invocation, Option, Record
from registry.cli.failure import CommandFailure
from registry.cli.listing import acting
from registry.cli.output import text_of
from registry.cli.progress import progress

WAIT: Final = Option("wait", "until it is done; exit 1 if it failed", "flag")
COLUMNS: Final = (
    Cell("ID", "id", "whole"),
    Cell("STATUS", "status"),
    Cell("STARTED", "started_at", "time"),
    Cell("FINISHED", "finished_at", "time"),
    acting("started_by", "started_by_source"),
)
"""The first columns of a list of runs."""
_SLOWEST: Final = 2.0
"""Maximum pause between two requests, in seconds."""


def await_run(
    invocation: Invocation, path: str, run: Record, words: Callable[[Record], str]
) -> Record:
    """Poll a run under `path` until it has ended, and return it; `words` formats its progress."""
    pause = 0.1
    with progress() as show:
        while run["status"] == "running":
            show(words(run))
            time.sleep(pause)
            pause = min(pause * 1.5, _SLOWEST)
            run = invocation.client.call("GET", f"{path}/{run['id']}")["run"]
    return run


def tell_ended(invocation: Invocation, run: Record, words: str) -> None:
    """Print how a run has ended, with `words` on what it did.

    Raises:
        CommandFailure: it failed.

    """
    invocation.say(f"{run['status'].capitalize()}: {words}", run)
    if run["status"] == "failed":
        raise CommandFailure(f"the run failed: {text_of(run['fault'])}")

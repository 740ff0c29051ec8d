"""Wait for a background run of the registry; show its progress, and how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from cloudcore.command_line import Invocation, Option, Record
from registry.cli.failure import CommandFailure
from registry.cli.listing import acting
from registry.cli.output import text_of
from registry.cli.progress import progress

WAIT: Final = Option("wait", "until it is done; exit 1 if it failed", "flag")
COLUMNS: Final = (
    "id",
    "status",
    "started_at",
    "finished_at",
    acting("started_by", "started_by_source"),
)
"""The first columns of a list of runs."""
_SLOWEST: Final = 2.0
"""Maximum pause between two requests, in seconds."""


def started(
    invocation: Invocation, path: str, said: str, words: Callable[[Record], str], runs: str = ""
) -> Record | None:
    """Start a run; if it is to be waited for, return it as it has ended, else tell what is `said`.

    `runs` is the path of the runs if it is another one; `words` formats the progress.
    """
    run: Record = invocation.client.create(path)["run"]
    if "wait" not in invocation.values:
        invocation.say(invocation.text(said, run), run)
        return None
    pause = 0.1
    with progress() as show:
        while run["status"] == "running":
            show(words(run))
            time.sleep(pause)
            pause = min(pause * 1.5, _SLOWEST)
            run = invocation.client.call("GET", f"{runs or path}/{run['id']}")["run"]
    return run


def tell_ended(invocation: Invocation, run: Record, words: str) -> None:
    """Print how a run has ended, with `words` on what it did.

    Raises:
        CommandFailure: it failed.

    """
    invocation.say(f"{run['status'].capitalize()}: {words}", run)
    if run["status"] == "failed":
        raise CommandFailure(f"the run failed: {text_of(run['fault'])}")

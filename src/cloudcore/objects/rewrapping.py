"""Rewrap: move stored bytes to another KMS key, in steps of a job.

A *use* is a row that uses stored bytes through a KMS key. Each step takes some uses, wraps their
data keys under the new KMS key, and points the uses to these wraps in one transaction. If another
new KMS key is chosen meanwhile, the run starts again with it.

A use whose KMS key is disabled or deleted is left unchanged: otherwise the right to rewrap would
open bytes that the owner of the KMS key has closed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from cloudcore.db.base import Connection, Database
from cloudcore.jobs.kinds import Done, Next, StepFailed
from cloudcore.jobs.queue import Job
from cloudcore.jobs.runs import Progress, Run, progress_run
from cloudcore.objects.wraps import CLOSED, Rewrapped, WrappedKey

COUNTS: Final = ("moved", "plain", "key_disabled", "key_deleted", "unreadable")
"""The counters of a run: one for uses that were moved, the others for uses left unchanged.

- *moved*: the new KMS key opens the bytes
- *plain*: the bytes are not sealed
- *key_disabled*: the KMS key is disabled, or its deletion is pending
- *key_deleted*: the KMS key was deleted; the bytes may already be shredded
- *unreadable*: no KMS key opens the data key
"""
_log = logging.getLogger(__name__)


class WrapUse(Protocol):
    """A row that uses stored bytes through a KMS key."""

    @property
    def stored_id(self) -> str:
        """Return the stored id of the bytes."""

    @property
    def obstacle(self) -> str | None:
        """Return why the use cannot move, judged by its row: a name in `COUNTS`, or None."""

    @property
    def wraps(self) -> Sequence[WrappedKey]:
        """Return the wraps of the data key that may be tried, the preferred one first."""


U = TypeVar("U", bound=WrapUse)


class UsePage(NamedTuple, Generic[U]):
    """The uses that one step moves."""

    target: str
    """The KMS key to move to."""
    uses: Sequence[U]
    looked_at: int
    """The number of uses on the page, including those that already have the target key."""
    next: Any
    """The cursor of the next step; None after the last step."""
    total: int | None = None
    """The number of uses left, if the run begins with this target; else None."""


async def run_step(
    database: Database,
    rewrap: Callable[[str, str, Sequence[Sequence[WrappedKey]]], Awaitable[Rewrapped]],
    run: Run,
    job: Job,
    read: Callable[[Connection, Run, Any], UsePage[U]],
    write: Callable[[Connection, Run, str, Sequence[U], Mapping[str, bytes]], int],
    unusable: Callable[[], StepFailed],
) -> Next | Done:
    """Wrap the data keys of the next uses; return the change that moves them.

    `read` returns the page of uses at a cursor. `write` points uses to new wraps, which are keyed
    by stored id, and returns the number moved. Both raise `StepFailed` if the step must be
    repeated, or the run has failed. If the target key has been disabled or deleted, raise the error
    that `unusable` returns.
    """
    portion = await database.read(read, run, job.cursor)
    movable = [use for use in portion.uses if use.obstacle is None]
    try:
        wraps = {use.stored_id: use.wraps for use in movable}
        made = await rewrap(run.account_id, portion.target, list(wraps.values()))
    except CLOSED:
        raise unusable() from None
    kept = Counter(use.obstacle for use in portion.uses if use.obstacle is not None)
    moving = [use for use in movable if use.stored_id in made.wraps]
    for use in movable:
        if use.stored_id not in made.wraps:
            why = made.kept.get(use.stored_id, "unreadable")
            kept[why] += 1
            if why == "unreadable":
                _log.error("no key opens the data key of %s", use)
    total = None if portion.total is None else run.done + portion.total

    def change(tx: Connection) -> None:
        moved = write(tx, run, portion.target, moving, made.wraps)
        done = run.done + portion.looked_at
        progress_run(tx, run.id, Progress({**kept, "moved": moved}, done, total))

    return Done(change) if portion.next is None else Next(portion.next, change)


def changed_meanwhile() -> StepFailed:
    """Return the error for a step that must be repeated because of concurrent changes."""
    return StepFailed("CHANGED_MEANWHILE", "stored bytes or keys were changed meanwhile")

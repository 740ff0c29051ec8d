"""Kinds of jobs: a family declares a step function and how it is retried."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.jobs.backoff import backoff_seconds
from cloudcore.jobs.queue import Job

Change = Callable[[Connection], object]
Committed = Callable[[Any], None]
"""Called once with the result of a change, after its commit; not after a rollback.

An exception is logged; it fails no step, because the commit stands."""

OUTBOUND_SLOTS: Final = 64
"""Slots of a kind whose steps mostly wait for other hosts."""


class Next(NamedTuple):
    """A step's result: continue the job; `change` and the new cursor are committed together."""

    cursor: Any
    """The job's new cursor; JSON."""
    change: Change | None = None
    delay_seconds: float = 0
    """Pause before the next step; it occupies no worker."""
    committed: Committed | None = None


class Done(NamedTuple):
    """A step's result: the job has succeeded, in the transaction of `change`."""

    change: Change | None = None
    committed: Committed | None = None


class StepFailed(Exception):
    """A step failed, for a reason that the owner of the job may read.

    `code` is a stable word in capitals; `message` contains no secret.
    """

    def __init__(self, code: str, message: str, *, is_permanent: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.is_permanent = is_permanent
        """True if a retry would not help."""


Step = Callable[[Job], Awaitable[Next | Done]]
"""Does the work at `job.cursor` and returns what to commit.

The step's effects outside the database may happen more than once, because a worker can die before
the commit. The effects of its `change` happen once. Bind dependencies with `functools.partial`.
"""

GaveUp = Callable[[Connection, Job], object]
"""Applies the consequences of a job's failure, in the transaction that ends the job.

The function gets the failed job with its fault. It must not raise an error: otherwise the job would
not end, and would fail again after its lease.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """A kind of job, with its step, retries and limits."""

    name: str
    step: Step
    max_attempts: int | None = 10
    """Maximum attempts of a step before the job fails; None for no limit."""
    step_seconds: float = 600
    """Maximum duration of one step, in seconds."""
    first_retry_seconds: float = 1
    longest_retry_seconds: float = 300
    slots: int | None = None
    """How many jobs of this kind a process runs at once, independent of other kinds. With None, the
    kind shares slots with all other such kinds, and may wait for their long jobs."""
    node: str = ""
    """Name of the machine on which its jobs run, if they are tied to one. A process gives these
    jobs up if another machine takes the name."""
    gave_up: GaveUp | None = None
    """Change to commit when the job fails."""
    gave_up_committed: Committed | None = None
    """Called with the result of `gave_up`, after its commit."""

    def retry_seconds(self, attempts: int, spread: float) -> float:
        """Return the pause after the `attempts`-th failure of a step.

        The pause doubles up to the maximum. `spread`, random from 0 to 1, is jitter: jobs that
        failed together are retried spread over the second half of the pause.
        """
        pause = backoff_seconds(self.first_retry_seconds, self.longest_retry_seconds, attempts - 1)
        return pause * (1 + spread) / 2

    def is_exhausted(self, attempts: int) -> bool:
        """Return True if a step is not retried after `attempts` attempts."""
        return self.max_attempts is not None and attempts >= self.max_attempts

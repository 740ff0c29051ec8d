"""What a family writes to have asynchronous work: a step function, and how often to try it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.jobs.queue import Job

Change = Callable[[Connection], object]
Committed = Callable[[Any], None]
"""Called once with what a change returned, after its commit; never after a rollback."""

_LARGEST_DOUBLING: Final = 30  # beyond it every span is at its cap


class Next(NamedTuple):
    """The job goes on: `change` and the new cursor are committed together."""

    cursor: Any
    """Where the job is now; JSON."""
    change: Change | None = None
    delay_seconds: float = 0
    """How long nothing is to be done; no worker is held meanwhile."""
    committed: Committed | None = None


class Done(NamedTuple):
    """The job has succeeded, in the transaction of `change`."""

    change: Change | None = None
    committed: Committed | None = None


class StepFailed(Exception):
    """A step could not do its work, for a reason the owner of the job may read.

    `code` is a stable word in capitals; `message` shows no secret.
    """

    def __init__(self, code: str, message: str, *, is_permanent: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.is_permanent = is_permanent
        """Trying again would not help."""


Step = Callable[[Job], Awaitable[Next | Done]]
"""Does what `job.cursor` says comes next, and says what to commit.

What it does outside the database may happen more than once: a worker can die before the commit.
What its `change` does happens once. Bind its surroundings with `functools.partial`.
"""

GaveUp = Callable[[Connection, Job], object]
"""Changes what follows from the failure of a job, in the transaction that ends it.

The job is given as it has failed, with its fault. Raise nothing: the job would not end, and be
given up again after its lease.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """A kind of job and its rules."""

    name: str
    step: Step
    max_attempts: int | None = 10
    """How often one step is tried before the job fails; None: until it works."""
    step_seconds: float = 600
    """How long one step may take."""
    first_retry_seconds: float = 1
    longest_retry_seconds: float = 300
    gave_up: GaveUp | None = None
    """What to commit when the job fails."""
    gave_up_committed: Committed | None = None
    """Called with what `gave_up` returned."""

    def retry_seconds(self, attempts: int, spread: float) -> float:
        """Return the pause after a step failed for the `attempts`-th time.

        It doubles up to the longest. `spread`, from 0 to 1, is chance: rivals that failed
        together come back over the second half of the span.
        """
        doubled = self.first_retry_seconds * 2.0 ** min(attempts - 1, _LARGEST_DOUBLING)
        return min(doubled, self.longest_retry_seconds) * (1 + spread) / 2

    def is_exhausted(self, attempts: int) -> bool:
        """Say whether a step tried `attempts` times is not tried again."""
        return self.max_attempts is not None and attempts >= self.max_attempts

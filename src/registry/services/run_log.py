"""Log a line for each run that has ended: its kind, what it did, and how long it took."""

from __future__ import annotations

import logging
from typing import Final, Protocol

from cloudcore.clock import MICROSECONDS

_log = logging.getLogger(__name__)

_DECIMALS: Final = 3


class EndedRun(Protocol):
    """The fields of a run that the line shows; moments are in microseconds."""

    @property
    def id(self) -> str:
        """Return its id."""
        ...

    @property
    def status(self) -> str:
        """Return ``succeeded`` or ``failed``."""
        ...

    @property
    def fault(self) -> str | None:
        """Return why it failed."""
        ...

    @property
    def started_at(self) -> int:
        """Return when it began."""
        ...

    @property
    def finished_at(self) -> int | None:
        """Return when it ended."""
        ...


def log_end(what: str, run: EndedRun, *, account_id: str, **about: str | int) -> None:
    """Log that a run has ended; `what` names its kind, `about` says what it did.

    Call it after the commit that ended the run, so that there is one line a run.
    """
    assert run.finished_at is not None
    seconds = round((run.finished_at - run.started_at) / MICROSECONDS, _DECIMALS)
    fields: dict[str, str | int | float] = {
        "run_id": run.id,
        "account_id": account_id,
        "status": run.status,
        **about,
        "duration_seconds": seconds,
    }
    if run.fault is not None:
        fields["fault"] = run.fault
    _log.info("%s %s %s", what, run.id, run.status, extra={"fields": fields})

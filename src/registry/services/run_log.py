"""Log one line for each finished run: its kind, counters and duration."""

from __future__ import annotations

import logging
from typing import Final

from cloudcore.clock import MICROSECONDS
from cloudcore.jobs.runs import Run

_log = logging.getLogger(__name__)

_DECIMALS: Final = 3


def log_end(what: str, run: Run, **about: str | int) -> None:
    """Log that a run has ended; `what` names its kind, `about` are further fields of the line.

    Call it after the commit that ended the run, so that each run is logged once.
    """
    assert run.finished_at is not None
    seconds = round((run.finished_at - run.started_at) / MICROSECONDS, _DECIMALS)
    fields: dict[str, str | int | float] = {
        "run_id": run.id,
        "account_id": run.account_id,
        "run_status": run.state,
        **about,
        "duration_seconds": seconds,
    }
    if run.fault is not None:
        fields["fault"] = run.fault
    _log.info("%s %s %s", what, run.id, run.state, extra={"fields": fields})

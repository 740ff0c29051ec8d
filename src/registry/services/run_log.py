"""Log one line for each finished run: its kind, counters and duration; and count it."""

from __future__ import annotations

import logging
from typing import Final

from cloudcore.clock import MICROSECONDS
from cloudcore.jobs.runs import Run
from registry.counted import RUNS
from registry.services.context import ServiceContext

_log = logging.getLogger(__name__)

_DECIMALS: Final = 3


def log_end(ctx: ServiceContext, what: str, run: Run, **about: str | int) -> None:
    """Log and count that a run has ended; `what` names its kind, `about` are further fields.

    Call it after the commit that ended the run, so that each run is logged once.
    """
    ctx.count(f"{RUNS}.{what}.{run.state}", 1)
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

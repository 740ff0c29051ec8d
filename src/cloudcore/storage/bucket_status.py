"""How a bucket is: its damaged objects, and the run that moves it to another key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from cloudcore.jobs.faults import Fault
from cloudcore.jobs.runs import Run
from cloudcore.web.fault_records import FaultRecord, fault_record
from cloudcore.wire import RFC3339, ResponseBody, rfc3339

MOST_DAMAGED: Final = 100
_NAMED: Final = 10


class Rewrap(ResponseBody):
    """A run that lets the key of a bucket open all pieces in which its objects are stored."""

    status: Literal["running", "succeeded", "failed"]
    done: int
    """Pieces it has looked at: an object has one, or one for each part."""
    moved: int
    """Pieces that the key opens now."""
    plain: int
    """Pieces that are stored plain, and so have no key."""
    key_disabled: int
    """Pieces that stayed, since their key is disabled or its deletion is pending."""
    key_deleted: int
    """Pieces that nothing opens, since their key was deleted."""
    unreadable: int
    """Pieces whose data key does not open; store their objects again."""
    fault: str | None
    """Error code and message of a failed run; else null."""
    started_at: RFC3339
    finished_at: RFC3339 | None


def rewrap_record(run: Run | None) -> Rewrap | None:
    """Return the record of a run."""
    if run is None:
        return None
    return Rewrap(
        status=msgspec.convert(run.state, Literal["running", "succeeded", "failed"]),
        done=run.done,
        **run.counts,
        fault=run.fault,
        started_at=rfc3339(run.started_at),
        finished_at=None if run.finished_at is None else rfc3339(run.finished_at),
    )


def bucket_faults(damaged: Sequence[tuple[str, int]]) -> list[FaultRecord]:
    """Return the fault of a bucket with damaged objects, given as (key, when it was found)."""
    if not damaged:
        return []
    keys = [repr(key) for key, _ in damaged[:_NAMED]]
    more = len(damaged) - len(keys)
    count = f"{len(damaged)} or more" if len(damaged) == MOST_DAMAGED else str(len(damaged))
    message = (
        f"{count} objects have damaged bytes and cannot be read; store them again:"
        f" {', '.join(keys)}{f' and {more} more' if more else ''}"
    )
    found = [at for _, at in damaged]
    fault = Fault("BYTES_DAMAGED", message, min(found), max(found), len(damaged))
    return [fault_record(fault, "error")]

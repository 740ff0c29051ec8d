"""The shape of faults in response bodies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from cloudcore.jobs.faults import Fault
from cloudcore.wire import RFC3339, ResponseBody, rfc3339

Severity = Literal["warning", "error"]


class FaultRecord(ResponseBody):
    """Something that goes wrong, counted; a success clears it."""

    code: str
    severity: Severity
    """A warning may go by itself."""
    message: str
    details: dict[str, str]
    first_at: RFC3339
    last_at: RFC3339
    occurrences: int


def fault_record(
    fault: Fault, severity: Severity, details: Mapping[str, str] | None = None
) -> FaultRecord:
    """Return the record of a fault."""
    return FaultRecord(
        code=fault.code,
        severity=severity,
        message=fault.message,
        details=dict(details or {}),
        first_at=rfc3339(fault.first_at),
        last_at=rfc3339(fault.last_at),
        occurrences=fault.occurrences,
    )

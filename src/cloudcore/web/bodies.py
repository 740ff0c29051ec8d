"""Parts of the bodies of answers that many families use: references, who acted, and faults.

Bodies of requests are read and checked in `cloudcore.web.app`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from msgspec import UNSET, UnsetType

from cloudcore.iam.principal import read_source
from cloudcore.jobs.faults import Fault
from cloudcore.resource_names import Uuid
from cloudcore.wire import RFC3339, ResponseBody, or_absent, rfc3339


class ResourceRef(ResponseBody):
    """A reference to another resource."""

    id: Uuid
    crn: str
    name: str


class KeyReference(ResponseBody):
    """A reference to a key, which keeps its id when the key is deleted."""

    id: Uuid
    crn: str | UnsetType = UNSET
    """Absent once the key is deleted."""
    name: str | UnsetType = UNSET
    """Absent once the key is deleted."""


class ReferencedKey(Protocol):
    """A resource, such as a key: it has an id and, until it is deleted, a CRN and a name."""

    @property
    def id(self) -> str:
        """Return the resource's id."""

    @property
    def crn(self) -> str | None:
        """Return the resource's CRN, or None if the resource was deleted."""

    @property
    def name(self) -> str | None:
        """Return the resource's name, or None if the resource was deleted."""


def reference_to(key: ReferencedKey) -> KeyReference:
    """Return the reference to a key for a response; only its id if the key was deleted."""
    return KeyReference(id=key.id, crn=or_absent(key.crn), name=or_absent(key.name))


class ActingSource(ResponseBody):
    """The person or service account that acted, itself or in a role."""

    crn: str
    name: str
    """E-mail address of a person, name of a service account; as it was then."""
    session_name: str | None
    """Name of the role session; null without a role."""


def acting_source(stored: str | None) -> ActingSource | None:
    """Return the source that is stored in a column, or None if there is none."""
    source = read_source(stored)
    return None if source is None else ActingSource(**source._asdict())


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
    """Return the response body for a fault."""
    return FaultRecord(
        code=fault.code,
        severity=severity,
        message=fault.message,
        details=dict(details or {}),
        first_at=rfc3339(fault.first_at),
        last_at=rfc3339(fault.last_at),
        occurrences=fault.occurrences,
    )

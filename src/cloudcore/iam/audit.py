"""Events of the audit log, and the port through which they are recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from cloudcore.db.base import Connection
from cloudcore.iam.principal import SourceIdentity
from cloudcore.ports import Port

MAX_USER_AGENT = 256
"""Maximum length of a stored user agent, in characters."""


class AuditClient(NamedTuple):
    """The client of a request: its address, program and plane."""

    plane: str
    source_ip: str | None
    user_agent: str
    request_id: str


class AuditEvent(NamedTuple):
    """An action that was done or refused, as the audit log stores it."""

    id: str
    owner_id: str
    """Id of the account or organization that has the resource, and may read the event."""
    occurred_at: int
    """Microseconds since the epoch."""
    action: str
    """An action that policies can name or, for events such as sign-ins, the family's own name."""
    resources: Sequence[str]
    """CRNs."""
    principal: str
    """CRN; empty for an unauthenticated client."""
    source: SourceIdentity | None
    """The person or program behind the principal."""
    client: AuditClient | None
    """None for actions of the platform itself."""
    details: Mapping[str, object] = {}
    """JSON; never a secret, never a document."""
    outcome: str = "succeeded"


SIGN_IN: Final = "iam:SignIn"
"""The action of events for sign-ins and for refused credentials."""

Owners = Callable[[Connection], Sequence[str]]
"""Returns the ids of the owners of an event (`AuditEvent.owner_id`)."""


class Auditor(Protocol):
    """Records events in the audit log."""

    def record(self, tx: Connection, event: AuditEvent) -> None:
        """Insert an event, in the transaction of the change that it describes."""

    def note_refusal(self, event: AuditEvent, owners: Owners | None = None) -> None:
        """Count a refusal in memory, to be written later.

        Refusals of the same principal, source, action and hour become one event. When the event is
        written, `owners` returns the ids of its owners; without `owners`, `event.owner_id` owns it.
        """


AUDITOR: Final[Port[Auditor]] = Port("platform.auditor")


def client_of(
    plane: str, source_ip: object, user_agent: bytes | None, request_id: str
) -> AuditClient:
    """Return the client of a request; truncate its user agent and escape control characters."""
    text = (user_agent or b"")[:MAX_USER_AGENT].decode("ascii", "backslashreplace")
    printable = "".join(each if each.isprintable() else "?" for each in text)[:MAX_USER_AGENT]
    return AuditClient(plane, None if source_ip is None else str(source_ip), printable, request_id)

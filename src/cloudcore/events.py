"""Events of families, emitted in the transaction of a change to the topics that event rules name.

The event of a change that the audit log records is made from its record (`tell_change`), so that no
handler has to. Changes that the audit log leaves out, such as objects of buckets, call
`Events.tell`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cloudcore.db.base import Connection
from cloudcore.iam.audit import AuditEvent
from cloudcore.iam.principal import Principal, SourceIdentity
from cloudcore.jobs.outbox import emit, emit_all
from cloudcore.ports import Port
from cloudcore.resource_names import Crn

TopicsOf = Callable[[Connection, str, str], Sequence[str]]
"""Returns the CRNs of the topics that an account's rules name for a type of events.

It takes one statement, whatever the account has.
"""


@dataclass(frozen=True, slots=True)
class Events:
    """Emits events about the resources of accounts to topics."""

    topics_of: TopicsOf
    principal: str | None = None
    """CRN; None for what the platform does by itself."""
    source: SourceIdentity | None = None

    def by(self, caller: Principal | None) -> Events:
        """Return an `Events` whose events name this caller."""
        return self if caller is None else self._by(caller.crn, caller.source)

    def tell(
        self,
        tx: Connection,
        account_id: str,
        event_type: str,
        told: Iterable[Mapping[str, object]],
        now: int,
    ) -> None:
        """Emit an event of a type for each of `told` when `tx` commits; call it last in a change.

        If no rule of the account asks for the type, `told` is not iterated.
        """
        topics = self.topics_of(tx, account_id, event_type)
        if not topics:
            return
        source = None if self.source is None else self.source._asdict()
        who = {"principal": self.principal, "source": source}
        payloads = [{"topics": topics, "data": {**each, **who}} for each in told]
        emit_all(tx, event_type, account_id, payloads, now)

    def tell_change(self, types: Mapping[str, str], tx: Connection, change: AuditEvent) -> None:
        """Emit the event of a change that the audit log records; `types` has its type by action.

        An action without a type has no event.
        """
        event_type = types.get(change.action)
        if event_type is None:
            return
        told = _data(change, noun=event_type.split(".")[1])
        by = self._by(change.principal or None, change.source)
        by.tell(tx, change.owner_id, event_type, [told], change.occurred_at)

    def _by(self, principal: str | None, source: SourceIdentity | None) -> Events:
        return replace(self, principal=principal, source=source)


EVENTS: Final[Port[Events]] = Port("platform.events")
TOLD_CHANGES: Final[Port[Mapping[str, str]]] = Port("platform.told_changes")
"""Types of the events of all families, by the actions that the audit log records."""
NO_EVENTS: Final = Events(lambda _tx, _account_id, _event_type: ())
"""Tells nobody."""


def tell_later(
    tx: Connection, account_id: str, event_type: str, data: Mapping[str, object], now: int
) -> None:
    """Emit an event of the platform itself; rules name its topics when it is delivered.

    It reads no rules in the change, of which it must be the last call.
    """
    emit(tx, event_type, account_id, {"data": {**data, "principal": None, "source": None}}, now)


def _data(change: AuditEvent, *, noun: str) -> dict[str, object]:
    """Return references to the resource of a change, and to the part of it that has no CRN."""
    crn = Crn.parse(change.resources[0])
    ids = {name: value for name, value in change.details.items() if name.endswith("_id")}
    if "location" in change.details:
        ids.setdefault(f"{noun}_id", str(change.details["location"]).rpartition("/")[2])
    of = crn.type.replace("-", "_")
    data: dict[str, object] = {of: {"id": ids.get(f"{of}_id"), "crn": str(crn), "name": crn.name}}
    if noun != of:
        data[noun] = {"id": ids.get(f"{noun}_id")}
    return data

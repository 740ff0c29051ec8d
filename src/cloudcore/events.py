"""Events of families, emitted to the topics that event rules name.

An event is emitted in the transaction of its change. If the audit log records a change, its event
is derived from the audit record (`emit_change`), so no handler has to emit it. Changes that the
audit log leaves out, such as those of objects in buckets, call `Events.emit`.
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
"""Returns the CRNs of the topics to which an account's rules send events of a type.

Its arguments are the transaction, the account's id and the event type. It runs one SQL statement,
however many rules the account has.
"""


@dataclass(frozen=True, slots=True)
class Events:
    """Emits events about the resources of accounts to topics."""

    topics_of: TopicsOf
    principal: str | None = None
    """CRN of the caller that the events name; None if the platform acts by itself."""
    source: SourceIdentity | None = None

    def by(self, caller: Principal | None) -> Events:
        """Return a copy whose events name this caller; for None, return this object unchanged."""
        return self if caller is None else self._by(caller.crn, caller.source)

    def emit(
        self,
        tx: Connection,
        account_id: str,
        event_type: str,
        data: Iterable[Mapping[str, object]],
        now: int,
    ) -> None:
        """Emit one event for each element of `data`; call this last in a transaction.

        The events are emitted if `tx` commits. If no rule of the account matches the type, `data`
        is not iterated.
        """
        topics = self.topics_of(tx, account_id, event_type)
        if not topics:
            return
        source = None if self.source is None else self.source._asdict()
        who = {"principal": self.principal, "source": source}
        payloads = [{"topics": topics, "data": {**each, **who}} for each in data]
        emit_all(tx, event_type, account_id, payloads, now)

    def emit_change(self, types: Mapping[str, str], tx: Connection, change: AuditEvent) -> None:
        """Emit the event for a change in the audit log, or nothing if its action has no event.

        `types` maps actions to event types.
        """
        event_type = types.get(change.action)
        if event_type is None:
            return
        data = _data(change, noun=event_type.split(".")[1])
        by = self._by(change.principal or None, change.source)
        by.emit(tx, change.owner_id, event_type, [data], change.occurred_at)

    def _by(self, principal: str | None, source: SourceIdentity | None) -> Events:
        return replace(self, principal=principal, source=source)


EVENTS: Final[Port[Events]] = Port("platform.events")
EVENT_TYPES_BY_ACTION: Final[Port[Mapping[str, str]]] = Port("platform.event_types_by_action")
"""The event types of all families, by the action that the audit log records for the change."""
NO_EVENTS: Final = Events(lambda _tx, _account_id, _event_type: ())
"""Emits nothing, as it finds no topics."""


def emit_from_platform(
    tx: Connection, account_id: str, event_type: str, data: Mapping[str, object], now: int
) -> None:
    """Emit an event of the platform itself; its topics are looked up when it is delivered.

    Unlike `Events.emit`, this reads no rules. Call it last in a transaction.
    """
    emit(tx, event_type, account_id, {"data": {**data, "principal": None, "source": None}}, now)


def _data(change: AuditEvent, *, noun: str) -> dict[str, object]:
    """Return an event's data: the resource and, if only a part of it changed, the id of the part.

    `noun` names what changed: the resource itself, or a part of it.
    """
    crn = Crn.parse(change.resources[0])
    ids = {name: value for name, value in change.details.items() if name.endswith("_id")}
    if "location" in change.details:
        ids.setdefault(f"{noun}_id", str(change.details["location"]).rpartition("/")[2])
    of = crn.type.replace("-", "_")
    data: dict[str, object] = {of: {"id": ids.get(f"{of}_id"), "crn": str(crn), "name": crn.name}}
    if noun != of:
        data[noun] = {"id": ids.get(f"{noun}_id")}
    return data

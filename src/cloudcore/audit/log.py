"""Record what was done in the transaction that does it, and count what was refused.

A refused attempt costs no transaction. It is counted in memory, and written every few seconds: one
row for each principal, action and hour, with the last resource. So a flood of refusals has bounded
rows, and a process that dies loses a few seconds of counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from cloudcore.audit import rows
from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.iam.audit import AuditEvent, Owners

FLUSH_SECONDS: Final = 10
MAX_PENDING: Final = 1000
"""The most refusals of different kinds that wait in memory; those of further kinds are dropped."""

_HOUR: Final = 3600 * MICROSECONDS


class _Pending(NamedTuple):
    """Refusals of one kind that are not written yet."""

    event: AuditEvent
    """The last of them, with the time of the first."""
    times: int
    owners: Owners | None


def record(tx: Connection, event: AuditEvent) -> None:
    """Insert an event, in the transaction of what it tells."""
    rows.add_event(tx, event)


class AuditLog:
    """The `Auditor` of a process."""

    def __init__(self, database: Database, new_id: Callable[[], str] = uuid7) -> None:
        self._database = database
        self._new_id = new_id
        self._pending: dict[str, _Pending] = {}

    def record(self, tx: Connection, event: AuditEvent) -> None:
        """Insert an event, in the transaction of what it tells."""
        record(tx, event)

    def note_refusal(self, event: AuditEvent, owners: Owners | None = None) -> None:
        """Count a refusal in memory."""
        hour = event.occurred_at // _HOUR
        key = f"{event.owner_id} {event.principal} {event.action} {hour}"
        known = self._pending.get(key)
        if known is None:
            if len(self._pending) < MAX_PENDING:
                self._pending[key] = _Pending(event, 1, owners)
            return
        last = event._replace(occurred_at=known.event.occurred_at)
        self._pending[key] = _Pending(last, known.times + 1, owners)

    async def flush(self) -> None:
        """Write the refusals that were counted."""
        while self._pending:
            key, pending = self._pending.popitem()
            await self._database.write_relaxed(self._add, key, pending)

    def _add(self, tx: Connection, key: str, pending: _Pending) -> None:
        event = pending.event
        owners = [event.owner_id] if pending.owners is None else pending.owners(tx)
        for owner_id in owners:
            own = event._replace(id=self._new_id(), owner_id=owner_id)
            rows.add_refusals(tx, own, f"{owner_id} {key}", pending.times)

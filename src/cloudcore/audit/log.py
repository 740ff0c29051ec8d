"""Record what was done in the transaction that does it, and count what was refused.

A refused attempt costs no transaction. It is counted in memory, and written every few seconds: one
row for each principal, source, action and hour, with the last resource. So a flood of refusals has
bounded rows, and a process that dies loses a few seconds of counts. While the database is away,
they wait in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from cloudcore.audit import rows
from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.errors import Unavailable
from cloudcore.iam.audit import AuditEvent, Owners

FLUSH_SECONDS: Final = 10
MAX_PENDING: Final = 1000
"""The most refusals of different kinds that wait in memory; those of further kinds are dropped."""

_HOUR: Final = 3600 * MICROSECONDS

_log = logging.getLogger(__name__)


class _Pending(NamedTuple):
    """Refusals of one kind that are not written yet."""

    event: AuditEvent
    """The last of them, with the time of the first."""
    times: int
    owners: Owners | None


def record(tx: Connection, event: AuditEvent) -> None:
    """Insert an event, in the transaction of what it tells."""
    rows.add_event(tx, event)


def _tell_nobody(_tx: Connection, _event: AuditEvent) -> None:
    """Do nothing; the default of `tell`."""


class AuditLog:
    """The `Auditor` of a process."""

    def __init__(
        self,
        database: Database,
        new_id: Callable[[], str] = uuid7,
        tell: Callable[[Connection, AuditEvent], None] = _tell_nobody,
    ) -> None:
        """Record in `database`; `tell` is called for what is recorded, in the same transaction."""
        self._database = database
        self._new_id = new_id
        self._tell = tell
        self._pending: dict[str, _Pending] = {}

    def record(self, tx: Connection, event: AuditEvent) -> None:
        """Insert an event, in the transaction of what it tells."""
        record(tx, event)
        self._tell(tx, event)

    def note_refusal(self, event: AuditEvent, owners: Owners | None = None) -> None:
        """Count a refusal in memory."""
        hour = event.occurred_at // _HOUR
        source = event.source.crn if event.source else ""
        key = f"{event.owner_id} {event.principal} {source} {event.action} {hour}"
        known = self._pending.get(key)
        if known is not None:
            self._pending[key] = _joined(known, _Pending(event, 1, owners))
        elif len(self._pending) < MAX_PENDING:
            self._pending[key] = _Pending(event, 1, owners)

    async def flush(self) -> None:
        """Write the refusals that were counted.

        Raises:
            Unavailable: the database is away. What is not written waits for the next call; if the
                outcome of a write is unknown, its refusals may be counted twice.

        """
        while self._pending:
            key, pending = self._pending.popitem()
            try:
                await self._database.write_relaxed(self._add, key, pending)
            except Unavailable:
                later = self._pending.get(key)
                self._pending[key] = _joined(pending, later) if later else pending
                raise
            except Exception:  # noqa: BLE001 - one that can never be written must not hold up the others
                _log.exception("refusals of %s could not be recorded", pending.event.action)

    def _add(self, tx: Connection, key: str, pending: _Pending) -> None:
        event = pending.event
        owners = [event.owner_id] if pending.owners is None else pending.owners(tx)
        for owner_id in owners:
            own = event._replace(id=self._new_id(), owner_id=owner_id)
            rows.add_refusals(tx, own, f"{owner_id} {key}", pending.times)


def _joined(first: _Pending, later: _Pending) -> _Pending:
    last = later.event._replace(occurred_at=first.event.occurred_at)
    return _Pending(last, first.times + later.times, later.owners)

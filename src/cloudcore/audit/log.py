"""Record changes in their transactions, and count refused attempts.

A refused attempt needs no transaction of its own. It is counted in memory by its kind: principal,
source, action and hour. The counts are written every few seconds, as one row for each kind, with
the last resource. So a flood of refusals adds few rows, and a process that dies loses a few seconds
of counts. While the database is unavailable, the counts wait in memory (at most `MAX_PENDING`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from cloudcore.audit import rows
from cloudcore.clock import MICROSECONDS, Clock, uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.errors import Unavailable
from cloudcore.events import EVENT_TYPES_BY_ACTION, EVENTS
from cloudcore.iam.audit import AUDITOR, AuditEvent, Owners
from cloudcore.jobs.background import recording
from cloudcore.ports import Opening, Port, offer
from cloudcore.web.organization_scope import MEMBERSHIP_POLICY, MembershipPolicy

FLUSH_SECONDS: Final = 10
MAX_PENDING: Final = 1000
"""Maximum number of kinds of refusals that wait in memory.

Beyond it, the account with the most kinds loses one, so that no account can keep the refusals of
others out of the log."""

_HOUR: Final = 3600 * MICROSECONDS

_log = logging.getLogger(__name__)


class _Pending(NamedTuple):
    """The refusals of one kind that were counted and not yet written."""

    event: AuditEvent
    """The last refusal, with the time of the first."""
    times: int
    owners: Owners | None


class AuditLog:
    """The `Auditor` of a process."""

    def __init__(
        self,
        database: Database,
        new_id: Callable[[], str] = uuid7,
        on_event: Callable[[Connection, AuditEvent], None] = lambda _tx, _event: None,
    ) -> None:
        """Record in `database`; call `on_event` with each event, in the same transaction."""
        self._database = database
        self._new_id = new_id
        self._on_event = on_event
        self._pending: dict[str, dict[str, _Pending]] = {}
        """By account (or by principal, for a person without a role), then by kind; an account
        without pending refusals has no entry."""
        self._count = 0
        """Total number of kinds in `_pending`."""

    def record(self, tx: Connection, event: AuditEvent) -> None:
        """Insert an event, in the transaction of its change."""
        rows.add_event(tx, event)
        self._on_event(tx, event)

    def note_refusal(self, event: AuditEvent, owners: Owners | None = None) -> None:
        """Count a refusal in memory, for `flush` to write."""
        hour = event.occurred_at // _HOUR
        source = event.source.crn if event.source else ""
        key = f"{event.owner_id} {event.principal} {source} {event.action} {hour}"
        whose, new = event.owner_id or event.principal, _Pending(event, 1, owners)
        kinds = self._pending.get(whose, {})
        known = kinds.get(key)
        if known is not None:
            kinds[key] = _joined(known, new)
        elif self._count < MAX_PENDING or self._make_room(len(kinds)):
            self._put(whose, key, new)

    async def flush(self) -> None:
        """Write the counted refusals.

        Raise `Unavailable` if the database is unavailable. Unwritten counts wait for the next call;
        if the outcome of a write is unknown, its refusals may be counted twice.
        """
        while self._pending:
            whose = next(iter(self._pending))
            key, pending = self._take(whose)
            try:
                await self._database.write_relaxed(self._add, key, pending)
            except Unavailable:
                later = self._pending.get(whose, {}).get(key)
                self._put(whose, key, _joined(pending, later) if later else pending)
                raise
            except Exception:  # noqa: BLE001 - an unwritable refusal must not hold up the others
                _log.exception("refusals of %s could not be recorded", pending.event.action)

    def _make_room(self, own: int) -> bool:
        """Drop one kind of the account with the most kinds of refusals; return True.

        `own` is the number of kinds of the account that needs room. Return False, and drop none, if
        no account has more than `own` + 1.
        """
        largest = max(self._pending, key=lambda whose: len(self._pending[whose]))
        if len(self._pending[largest]) <= own + 1:
            return False
        self._take(largest)
        return True

    def _put(self, whose: str, key: str, pending: _Pending) -> None:
        kinds = self._pending.setdefault(whose, {})
        self._count += key not in kinds
        kinds[key] = pending

    def _take(self, whose: str) -> tuple[str, _Pending]:
        """Remove the refusals of one kind of an account; return (key of the kind, refusals).

        The account's other kinds are written after those of all other accounts.
        """
        kinds = self._pending.pop(whose)
        taken = kinds.popitem()
        self._count -= 1
        if kinds:
            self._pending[whose] = kinds
        return taken

    def _add(self, tx: Connection, key: str, pending: _Pending) -> None:
        event = pending.event
        owners = [event.owner_id] if pending.owners is None else pending.owners(tx)
        for owner_id in owners:
            own = event._replace(id=self._new_id(), owner_id=owner_id)
            rows.add_refusals(tx, own, f"{owner_id} {key}", pending.times)


def _joined(first: _Pending, later: _Pending) -> _Pending:
    last = later.event._replace(occurred_at=first.event.occurred_at)
    return _Pending(last, first.times + later.times, later.owners)


NamedResource = Callable[[str, str], str]

KEPT_SECONDS: Final[Port[int]] = Port("audit.kept_seconds")
NAMED_RESOURCE: Final[Port[NamedResource]] = Port("audit.named_resource")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditNeeds:
    """The dependencies of the audit log's routes and timer."""

    database: Database
    clock: Clock
    kept_seconds: int
    """Age at which events are deleted."""
    named_resource: NamedResource
    """Returns the CRN of a resource that a filter names, given the account id and the name, which
    may end in a ``*``."""
    membership_policy: MembershipPolicy


async def open_needs(opening: Opening) -> AuditNeeds:
    """Return the audit dependencies of this process."""
    return AuditNeeds(
        database=opening.install.database,
        clock=opening.install.clock,
        kept_seconds=await opening.get(KEPT_SECONDS),
        named_resource=await opening.get(NAMED_RESOURCE),
        membership_policy=await opening.get(MEMBERSHIP_POLICY),
    )


async def _open_log(opening: Opening) -> AuditLog:
    """Return this process's audit log; it is flushed at intervals and at shutdown."""
    install = opening.install
    events, told = await opening.get(EVENTS), await opening.get(EVENT_TYPES_BY_ACTION)
    log = AuditLog(install.database, install.new_id, partial(events.emit_change, told))
    await opening.resources.enter_async_context(
        recording(FLUSH_SECONDS, log.flush, "the last events of the audit log")
    )
    return log


OFFERS: Final = (offer(AUDITOR, _open_log),)

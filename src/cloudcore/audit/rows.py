"""The table of the audit log, its queries, and the stored form of details.

Rows of changes are never changed, only deleted by age.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET
from sqlalchemy import (
    DDL,
    CheckConstraint,
    Column,
    ColumnElement,
    Index,
    Integer,
    Select,
    String,
    Table,
    Text,
    bindparam,
    event,
    func,
    literal_column,
    or_,
    select,
    text,
    tuple_,
)
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection, Row
from cloudcore.db.rows import deletion, given
from cloudcore.db.schema import ByteOrdered, Id, Moment, metadata, partial_index
from cloudcore.db.statement import Statement, page, paged
from cloudcore.iam.audit import AuditEvent

IS_REFUSAL = text("refusal_key IS NOT NULL")

audit_events = Table(
    "audit_events",
    metadata,
    Column("id", Id, primary_key=True),
    # The account or organization; no foreign key, since events outlive what they tell of.
    Column("owner_id", Id, nullable=False),
    Column("occurred_at", Moment, nullable=False, index=True),  # of a refusal: the first time
    Column("action", ByteOrdered, nullable=False),
    Column("resource", ByteOrdered, nullable=False),  # CRN, the first; of a refusal: the last
    Column("resources", Text),  # JSON: all of them, if there are several
    Column("principal", ByteOrdered, nullable=False),  # CRN; empty: not signed in
    Column("source_crn", ByteOrdered),
    Column("source_name", ByteOrdered),
    Column("session_name", Text),
    Column("plane", String(16)),  # null: the service by itself
    Column("outcome", String(16), nullable=False),
    Column("source_ip", Text),
    Column("user_agent", Text),
    Column("request_id", Text),
    Column("details", Text, nullable=False),  # a JSON object
    Column("refusal_key", Text),  # what refusals are counted by; null: it was done
    Column("times", Integer, nullable=False),
    Column("last_at", Moment, nullable=False),
    CheckConstraint("outcome IN ('succeeded', 'refused')", name="outcome"),
    CheckConstraint("(outcome = 'refused') = (refusal_key IS NOT NULL)", name="refusal_key"),
    CheckConstraint("times = 1 OR outcome = 'refused'", name="times"),
    Index("ix_audit_events_owner", "owner_id", "occurred_at", "id"),
    Index("ix_audit_events_resource", "owner_id", "resource", "occurred_at", "id"),
)
partial_index("uq_audit_events_refusal", audit_events.c.refusal_key, unique=True, where=IS_REFUSAL)

_REFUSED = "an event of the audit log is never changed"
_IS_CHANGE = "OLD.outcome <> 'refused' OR NEW.outcome <> 'refused'"
_TRIGGER = "CREATE TRIGGER audit_events_unchanged BEFORE UPDATE ON audit_events FOR EACH ROW"
_IN_SQLITE = f"{_TRIGGER} WHEN {_IS_CHANGE} BEGIN SELECT RAISE(ABORT, '{_REFUSED}'); END"
_FUNCTION = f"""CREATE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS
 $$ BEGIN RAISE EXCEPTION '{_REFUSED}'; END $$"""
_IN_POSTGRESQL = f"{_TRIGGER} WHEN ({_IS_CHANGE}) EXECUTE FUNCTION refuse_audit_change()"
for _dialect, _made in (
    ("sqlite", _IN_SQLITE),
    ("postgresql", _FUNCTION),
    ("postgresql", _IN_POSTGRESQL),
):
    _made_after = DDL(_made).execute_if(dialect=_dialect)  # type: ignore[no-untyped-call]
    event.listen(audit_events, "after_create", _made_after)


CUT: Final = "cut"
"""The name under which cut details tell how many entries, or characters, each of them had."""
_FOR_CUT: Final = 1024
_MOST: Final = 32
"""Maximum number of details that are kept when they are too long."""


def cut_details(details: dict[str, Any], most: int) -> dict[str, Any]:
    """Cut details, which are JSON values, to `most` characters of JSON.

    Short values, such as counts, are kept whole; lists, objects and texts keep their start. ``CUT``
    has the length of each value that was cut, or null for one that was left out.
    """
    kept: dict[str, Any] = {}
    lengths: dict[str, int | None] = {}
    room = most - _FOR_CUT
    for name, value in sorted(details.items(), key=lambda item: _length(item[1]))[:_MOST]:
        left = room - len(name) - 4
        part = _beginning(value, left)
        if part is not UNSET:
            kept[name] = part
            room = left - _length(part)
        if part != value:
            lengths[name] = len(value) if isinstance(value, str | list | dict) else None
    result = {**kept, CUT: lengths}
    return result if _length(result) <= most else {CUT: {}}


def _beginning(value: Any, room: int) -> Any:  # noqa: ANN401 - JSON
    """Return as much of a value as fits into `room` characters of JSON; UNSET for nothing."""
    if _length(value) <= room:
        return value
    if isinstance(value, str):
        return value[: max(0, room - 2) // 6] or UNSET  # a character is up to six in JSON
    if isinstance(value, list):
        return [part for _, part in _entries((("", each) for each in value), room)] or UNSET
    if isinstance(value, dict):
        return dict(_entries(value.items(), room)) or UNSET
    return UNSET


def _entries(entries: Iterable[tuple[str, Any]], room: int) -> Iterable[tuple[str, Any]]:
    """Yield the first entries that fit; the last of them may be cut."""
    left = room - 2
    for name, value in entries:
        left -= _length(name) + 2
        part = _beginning(value, left)
        if part is UNSET:
            return
        yield name, part
        if part != value:
            return
        left -= _length(part)


def _length(value: object) -> int:
    return len(msgspec.json.encode(value))


WINDOW: Final = 2000
"""The most events that one read looks at for those that match a filter."""
MAX_DETAILS: Final = 16_384
"""The most characters of an event's details as JSON; longer ones are cut."""

_e = audit_events.c
_END: Final = 2**62
"""Sorts after every moment."""


class AuditRow(NamedTuple):
    """A stored event."""

    id: str
    occurred_at: int
    action: str
    resource: str
    resources: str | None
    principal: str
    source_crn: str | None
    source_name: str | None
    session_name: str | None
    plane: str | None
    outcome: str
    source_ip: str | None
    user_agent: str | None
    request_id: str | None
    details: str
    times: int
    """How often it was refused; 1 for what was done."""
    last_at: int

    @property
    def position(self) -> tuple[int, str]:
        """Return its place in the order of the log."""
        return self.occurred_at, self.id


class AuditFilter(NamedTuple):
    """The filter of a search for events; an empty text matches any."""

    who: str = ""
    """CRN of the principal or of the source, or the source's name."""
    action: str = ""
    """An action, or the beginning of one before a ``*``."""
    resource: str = ""
    """A CRN, or the beginning of one before a ``*``."""
    outcome: str = ""
    since: int = 0
    until: int = _END


class AuditPage(NamedTuple):
    """Matching events, newest first, and where to continue, or None at the end."""

    rows: Sequence[AuditRow]
    after: tuple[int, str] | None


_COLUMNS: Final = tuple(_e[name] for name in AuditRow._fields)
_NEW: Final = insert(audit_events).values(
    {name: bindparam(name) for name in audit_events.c.keys()}  # noqa: SIM118 - columns, by name
)
_ADD: Final = Statement(_NEW)
_ADD_REFUSALS: Final = Statement(
    _NEW.on_conflict_do_update(
        index_elements=["refusal_key"],
        index_where=IS_REFUSAL,
        set_={
            "times": _e.times + _NEW.excluded.times,
            **{
                name: _NEW.excluded[name]
                for name in (
                    *("last_at", "resource", "source_ip", "user_agent", "request_id"),
                    *("source_name", "session_name", "plane", "details"),
                )
            },
        },
    )
)
_FIND: Final = Statement(select(*_COLUMNS).where(given(_e.owner_id, _e.id)))
forget_events: Final = deletion(_e.occurred_at)
"""Deletes a batch of the events up to a moment."""


def _window(*also: ColumnElement[bool]) -> Select[Any]:
    """Return the query for the next events of an owner in the order of the log."""
    before = tuple_(bindparam("before_at"), bindparam("before_id"))
    return (
        select(*_COLUMNS)
        .where(
            _e.owner_id == bindparam("owner_id"),
            *also,
            tuple_(_e.occurred_at, _e.id) < before,
            _e.occurred_at >= bindparam("since"),
        )
        .order_by(_e.occurred_at.desc(), _e.id.desc())
    )


def _begins(column: ColumnElement[str], parameter: str) -> ColumnElement[bool]:
    """Return whether a column equals a text, or begins with what is before a ``*`` at its end."""
    wanted = bindparam(f"{parameter}_prefix", type_=_e.action.type)
    return or_(
        column == bindparam(parameter, type_=_e.action.type),
        func.substr(column, literal_column("1"), func.length(wanted)) == wanted,
    )


def _matching(window: Select[Any]) -> Statement:
    """Return the query for those of a window that match the filter."""
    found = page(window).subquery("events")
    c = found.c
    anyone = bindparam("who", type_=_e.principal.type)
    outcome = bindparam("outcome", type_=_e.outcome.type)
    return Statement(
        select(*(c[name] for name in AuditRow._fields))
        .where(
            or_(
                anyone == text("''"),
                c.principal == anyone,
                c.source_crn == anyone,
                c.source_name == anyone,
            ),
            _begins(c.action, "action"),
            _begins(c.resource, "resource"),
            or_(outcome == text("''"), c.outcome == outcome),
        )
        .order_by(c.occurred_at.desc(), c.id.desc())
    )


_LIST: Final = paged(_window())
_MATCHING: Final = _matching(_window())
_OF_RESOURCE: Final = _e.resource == bindparam("resource", type_=_e.resource.type)
_MATCHING_OF_RESOURCE: Final = _matching(_window(_OF_RESOURCE))


def _edge(*also: ColumnElement[bool]) -> Statement:
    """Return the query for the last event of a full window."""
    last = _window(*also).limit(literal_column("1")).offset(literal_column(str(WINDOW - 1)))
    return Statement(last)


_EDGE: Final = _edge()
_EDGE_OF_RESOURCE: Final = _edge(_OF_RESOURCE)


def add_event(tx: Connection, event: AuditEvent) -> None:
    """Insert the event of a change."""
    tx.execute(_ADD, **_values(event), refusal_key=None, times=1)


def add_refusals(tx: Connection, event: AuditEvent, key: str, times: int) -> None:
    """Insert a refusal counted `times`, or add to the row with the same key."""
    tx.execute(_ADD_REFUSALS, **_values(event), refusal_key=key, times=times)


def find_event(tx: Connection, owner_id: str, event_id: str) -> AuditRow | None:
    """Return an event of an owner, or None."""
    row = tx.row(_FIND, owner_id=owner_id, id=event_id)
    return AuditRow(*row) if row else None


def list_events(
    tx: Connection,
    owner_id: str,
    wanted: AuditFilter,
    after: tuple[int, str] | None,
    limit: int,
) -> AuditPage:
    """Return up to `limit` matching events behind `after`, newest first.

    At most `WINDOW` events are looked at. So a page may be short, or empty, with more to come.
    """
    before_at, before_id = after or (wanted.until, "")
    place = {
        "owner_id": owner_id,
        "before_at": before_at,
        "before_id": before_id,
        "since": wanted.since,
    }
    if not (wanted.who or wanted.action or wanted.resource or wanted.outcome):
        rows = [AuditRow(*row) for row in tx.rows(_LIST, **place, limit=limit + 1)]
        return _cut(rows, limit, None)
    of_resource = bool(wanted.resource) and not wanted.resource.endswith("*")
    filters = {
        "who": wanted.who,
        "outcome": wanted.outcome,
        **_prefixed("action", wanted.action),
        **_prefixed("resource", wanted.resource),
    }
    query = _MATCHING_OF_RESOURCE if of_resource else _MATCHING
    found = [AuditRow(*row) for row in tx.rows(query, **place, **filters, limit=WINDOW)]
    if len(found) > limit:
        return _cut(found, limit, None)
    if of_resource:
        edge = tx.row(_EDGE_OF_RESOURCE, **place, resource=wanted.resource)
    else:
        edge = tx.row(_EDGE, **place)
    return _cut(found, limit, edge)


def _cut(rows: list[AuditRow], limit: int, edge: Row | None) -> AuditPage:
    if len(rows) > limit:
        return AuditPage(rows[:limit], rows[limit - 1].position)
    return AuditPage(rows, None if edge is None else AuditRow(*edge).position)


def _prefixed(name: str, given: str) -> dict[str, str]:
    """Return the parameters of `_begins`; without a text, every column begins with the prefix."""
    if given and not given.endswith("*"):
        return {name: given, f"{name}_prefix": "\N{DELETE}"}
    return {name: given, f"{name}_prefix": given.removesuffix("*")}


def _values(event: AuditEvent) -> Mapping[str, object]:
    resources = list(dict.fromkeys(event.resources))
    crn, name, session_name = event.source or (None, None, None)
    plane, source_ip, user_agent, request_id = event.client or (None, None, None, None)
    return {
        "id": event.id,
        "owner_id": event.owner_id,
        "occurred_at": event.occurred_at,
        "action": event.action,
        "resource": resources[0] if resources else "",
        "resources": _json(resources) if len(resources) > 1 else None,
        "principal": event.principal,
        "source_crn": crn,
        "source_name": name,
        "session_name": session_name,
        "plane": plane,
        "outcome": event.outcome,
        "source_ip": source_ip,
        "user_agent": user_agent,
        "request_id": request_id,
        "details": _details(event.details),
        "last_at": event.occurred_at,
    }


def _details(details: Mapping[str, object]) -> str:
    """Return the details as JSON, cut if they are too long."""
    encoded = _json(details)
    if len(encoded) <= MAX_DETAILS:
        return encoded
    return _json(cut_details(msgspec.json.decode(encoded, type=dict[str, Any]), MAX_DETAILS))


def _json(value: object) -> str:
    # Never fails, as the change would fail with it.
    return msgspec.json.encode(value, enc_hook=str).decode()

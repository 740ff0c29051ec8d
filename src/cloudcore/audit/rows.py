"""The table of the audit log, its queries, and the stored form of details.

Rows of changes are never updated, only deleted by age.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa
from msgspec import UNSET
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection
from cloudcore.db.rows import bound, deletion, find_all, find_one, given
from cloudcore.db.schema import ByteOrdered, Id, Moment, one_of
from cloudcore.db.statement import Statement, page, paged
from cloudcore.db.tables import columns, indexes, named_index, table, unique_index
from cloudcore.iam.audit import AuditClient, AuditEvent

IS_REFUSAL: Final = "refusal_key IS NOT NULL"

audit_events = table(
    "audit_events",
    # The account or organization; no foreign key, since events outlive their owner.
    columns(Id, "owner_id"),
    columns(Moment, "occurred_at, last_at"),  # the first and the last time of a refusal
    columns(ByteOrdered, "action"),
    columns(ByteOrdered, "resource"),  # CRN of the first resource; for a refusal, of the last
    columns(sa.Text, "resources NULL"),  # JSON list of all CRNs, if there are several
    columns(ByteOrdered, "principal"),  # CRN; empty: not signed in
    columns(ByteOrdered, "source_crn NULL, source_name NULL"),
    columns(sa.String(16), "plane NULL"),  # null if the service itself acted
    columns(sa.String(16), "outcome"),
    columns(sa.Text, "session_name NULL, source_ip NULL, user_agent NULL, request_id NULL"),
    columns(sa.Text, "details"),  # a JSON object
    columns(sa.Text, "refusal_key NULL"),  # refusals with the same key share a row; else null
    columns(sa.Integer, "times"),
    one_of("outcome", "succeeded", "refused"),
    sa.CheckConstraint("(outcome = 'refused') = (refusal_key IS NOT NULL)", name="refusal_key"),
    sa.CheckConstraint("times = 1 OR outcome = 'refused'", name="times"),
    indexes("occurred_at"),
    named_index("owner", "owner_id, occurred_at, id"),
    named_index("resource", "owner_id, resource, occurred_at, id"),
    unique_index("refusal", "refusal_key", IS_REFUSAL),
)

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
    _made_after = sa.DDL(_made).execute_if(dialect=_dialect)  # type: ignore[no-untyped-call]
    sa.event.listen(audit_events, "after_create", _made_after)


CUT: Final = "cut"
"""The key in cut details that maps the name of each cut value to the length that it had."""
_FOR_CUT: Final = 1024
_MOST: Final = 32
"""Maximum number of entries in details that are cut."""


def cut_details(details: dict[str, Any], most: int) -> dict[str, Any]:
    """Cut details, which are JSON values, to `most` bytes of JSON.

    Short values, such as counts, stay whole; lists, objects and texts keep their start. Under the
    key ``CUT`` is the former length, in entries or characters, of each value that was cut or left
    out; null if it was no list, object or text. Beyond `_MOST`, the longest values are omitted.
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
    """Return as much of a value as fits into `room` bytes of JSON; UNSET if nothing fits."""
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
    """Yield the first entries that fit into `room` bytes of JSON; the last may be cut."""
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
"""Maximum number of events that one filtered read examines."""
MAX_DETAILS: Final = 16_384
"""Maximum characters of an event's details as JSON; longer details are cut."""

_e = audit_events.c
_END: Final = 2**62
"""Later than every moment."""


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
    """How often the action was refused; 1 if it was done."""
    last_at: int

    @property
    def position(self) -> tuple[int, str]:
        """Return the event's position in the log: its time and id."""
        return self.occurred_at, self.id


class AuditFilter(NamedTuple):
    """The filter of a search for events; an empty string matches anything."""

    who: str = ""
    """CRN of the principal or of the source, or the name of the source."""
    action: str = ""
    """An action, or a prefix of actions followed by ``*``."""
    resource: str = ""
    """A CRN, or a prefix of CRNs followed by ``*``."""
    outcome: str = ""
    since: int = 0
    until: int = _END


class AuditPage(NamedTuple):
    """Matching events, newest first, and the position to continue after; None on the last page."""

    rows: Sequence[AuditRow]
    after: tuple[int, str] | None


_COLUMNS: Final = tuple(_e[name] for name in AuditRow._fields)
_NEW: Final = insert(audit_events).values(bound(audit_events.c.keys()))
_ADD: Final = Statement(_NEW)
_ADD_REFUSALS: Final = Statement(
    _NEW.on_conflict_do_update(
        index_elements=["refusal_key"],
        index_where=sa.text(IS_REFUSAL),
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
_FIND_EVENT: Final = Statement(sa.select(*_COLUMNS).where(given(_e.owner_id, _e.id)))
forget_events: Final = deletion(_e.occurred_at)
"""Deletes a batch of the events that occurred up to a moment."""


def _window(*also: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Return the query for an owner's events before a position, newest first."""
    before = sa.tuple_(sa.bindparam("before_at"), sa.bindparam("before_id"))
    return (
        sa.select(*_COLUMNS)
        .where(
            _e.owner_id == sa.bindparam("owner_id"),
            *also,
            sa.tuple_(_e.occurred_at, _e.id) < before,
            _e.occurred_at >= sa.bindparam("since"),
        )
        .order_by(_e.occurred_at.desc(), _e.id.desc())
    )


def _begins(column: sa.ColumnElement[str], parameter: str) -> sa.ColumnElement[bool]:
    """Return the condition that a column has the value, or the prefix, in a bind parameter.

    `_prefixed` returns the values of the bind parameters.
    """
    wanted = sa.bindparam(f"{parameter}_prefix", type_=_e.action.type)
    return sa.or_(
        column == sa.bindparam(parameter, type_=_e.action.type),
        sa.func.substr(column, sa.literal_column("1"), sa.func.length(wanted)) == wanted,
    )


def _matching(window: sa.Select[Any]) -> Statement:
    """Return the query for the rows of `window` that match an `AuditFilter`."""
    found = page(window).subquery("events")
    c = found.c
    anyone = sa.bindparam("who", type_=_e.principal.type)
    outcome = sa.bindparam("outcome", type_=_e.outcome.type)
    return Statement(
        sa.select(*(c[name] for name in AuditRow._fields))
        .where(
            sa.or_(
                anyone == sa.text("''"),
                c.principal == anyone,
                c.source_crn == anyone,
                c.source_name == anyone,
            ),
            _begins(c.action, "action"),
            _begins(c.resource, "resource"),
            sa.or_(outcome == sa.text("''"), c.outcome == outcome),
        )
        .order_by(c.occurred_at.desc(), c.id.desc())
    )


_LIST: Final = paged(_window())
_MATCHING: Final = _matching(_window())
_OF_RESOURCE: Final = _e.resource == sa.bindparam("resource", type_=_e.resource.type)
_MATCHING_OF_RESOURCE: Final = _matching(_window(_OF_RESOURCE))


def _edge(*also: sa.ColumnElement[bool]) -> Statement:
    """Return the query for the event at which a filtered read stops, the `WINDOW`-th it examines.

    The query has no row if the read reaches the oldest event before.
    """
    last = _window(*also).limit(sa.literal_column("1")).offset(sa.literal_column(str(WINDOW - 1)))
    return Statement(last)


_EDGE: Final = _edge()
_EDGE_OF_RESOURCE: Final = _edge(_OF_RESOURCE)


def add_event(tx: Connection, event: AuditEvent) -> None:
    """Insert an event."""
    tx.execute(_ADD, **_values(event), refusal_key=None, times=1)


def add_refusals(tx: Connection, event: AuditEvent, key: str, times: int) -> None:
    """Insert a refusal with its number of `times`, or add them to the row with the same `key`."""
    tx.execute(_ADD_REFUSALS, **_values(event), refusal_key=key, times=times)


def list_events(
    tx: Connection,
    owner_id: str,
    wanted: AuditFilter,
    after: tuple[int, str] | None,
    limit: int,
) -> AuditPage:
    """Return up to `limit` matching events older than `after`, newest first.

    `after` is the position of the last event of the previous page, or None. With a filter, at most
    `WINDOW` events are examined, so a page may be short or empty although more follow.
    """
    before_at, before_id = after or (wanted.until, "")
    place = {
        "owner_id": owner_id,
        "before_at": before_at,
        "before_id": before_id,
        "since": wanted.since,
    }
    if not (wanted.who or wanted.action or wanted.resource or wanted.outcome):
        return _cut(find_all(tx, AuditRow, _LIST, **place, limit=limit + 1), limit, None)
    of_resource = bool(wanted.resource) and not wanted.resource.endswith("*")
    filters = {
        "who": wanted.who,
        "outcome": wanted.outcome,
        **_prefixed("action", wanted.action),
        **_prefixed("resource", wanted.resource),
    }
    query = _MATCHING_OF_RESOURCE if of_resource else _MATCHING
    found = find_all(tx, AuditRow, query, **place, **filters, limit=WINDOW)
    edge = None
    if len(found) <= limit and of_resource:
        edge = find_one(tx, AuditRow, _EDGE_OF_RESOURCE, **place, resource=wanted.resource)
    elif len(found) <= limit:
        edge = find_one(tx, AuditRow, _EDGE, **place)
    return _cut(found, limit, edge)


def _cut(rows: list[AuditRow], limit: int, edge: AuditRow | None) -> AuditPage:
    if len(rows) > limit:
        return AuditPage(rows[:limit], rows[limit - 1].position)
    return AuditPage(rows, None if edge is None else edge.position)


def _prefixed(name: str, given: str) -> dict[str, str]:
    """Return the bind parameters of `_begins` for a text; an empty text matches every column."""
    if given and not given.endswith("*"):
        return {name: given, f"{name}_prefix": "\N{DELETE}"}
    return {name: given, f"{name}_prefix": given.removesuffix("*")}


def _values(event: AuditEvent) -> Mapping[str, object]:
    resources = list(dict.fromkeys(event.resources))
    crn, name, session_name = event.source or (None, None, None)
    client = dict(zip(AuditClient._fields, event.client or (None,) * 4, strict=True))
    return {
        **client,
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
        "outcome": event.outcome,
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
    # Values of unknown types become strings: an error here would fail the change itself.
    return msgspec.json.encode(value, enc_hook=str).decode()


def find_event(tx: Connection, owner_id: str, event_id: str) -> AuditRow | None:
    """Return an event of an owner, or None if the owner has no event with this id."""
    return find_one(tx, AuditRow, _FIND_EVENT, owner_id=owner_id, id=event_id)

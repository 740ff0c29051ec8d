"""The table of the audit log. Rows of what was done are never changed, only deleted by age."""

from __future__ import annotations

from sqlalchemy import (
    DDL,
    CheckConstraint,
    Column,
    Index,
    Integer,
    String,
    Table,
    Text,
    event,
    text,
)

from cloudcore.db.schema import ByteOrdered, Id, Moment, metadata, partial_index

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

"""The stored state and faults of each rule's upstream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import bindparam, or_, select
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection
from cloudcore.db.rows import ONE, bound, columns_of, find_all, find_one, given, insert_or_change
from cloudcore.db.statement import Statement, listed, text_list
from registry.metadata.pull_through.tables import (
    pull_through_cache_rules,
    upstream_faults,
    upstream_states,
)

_r = pull_through_cache_rules.c
_s = upstream_states.c
_f = upstream_faults.c


class UpstreamState(NamedTuple):
    """The state of a rule's upstream: pauses, failures, and its rate limit."""

    rule_id: str
    paused_until: int | None = None
    pause_code: str | None = None
    failures: int = 0
    """Failures in a row, at most one counted per second."""
    failed_at: int | None = None
    rate_limit: int | None = None
    rate_remaining: int | None = None
    rate_window_seconds: int | None = None
    rate_at: int | None = None
    accepted_repository: str | None = None
    """The repository, at the upstream, for which the rule's credential was last accepted."""
    accepted_at: int | None = None


class UpstreamFault(NamedTuple):
    """A fault of a rule's upstream, with its count."""

    rule_id: str
    code: str
    message: str
    stage: str
    http_status: int | None
    first_at: int
    last_at: int
    occurrences: int


_COLUMNS: Final = columns_of(upstream_states, UpstreamState._fields)
_STATES: Final = Statement(_COLUMNS.where(_s.rule_id.in_(listed("rule_ids"))))
_STATE: Final = Statement(_COLUMNS.where(given(_s.rule_id)))
_FAULTS: Final = Statement(
    columns_of(upstream_faults, UpstreamFault._fields)
    .where(_f.rule_id.in_(listed("rule_ids")), _f.last_at >= bindparam("since"))
    .order_by(_f.rule_id, _f.last_at.desc(), _f.code)
)
_PUT_STATE: Final = Statement(insert_or_change(upstream_states, UpstreamState._fields))
_new_fault = insert(upstream_faults).values(bound(UpstreamFault._fields))
_COUNT_FAULT: Final = Statement(
    _new_fault.on_conflict_do_update(
        index_elements=["rule_id", "code"],
        set_={
            **{
                name: _new_fault.excluded[name]
                for name in ("message", "stage", "http_status", "last_at")
            },
            "occurrences": _f.occurrences + ONE,
        },
    )
)
_FORGET: Final = Statement(upstream_states.delete().where(given(_s.rule_id)))
_RULE: Final = Statement(select(_r.id).where(_r.id == bindparam("rule_id")).with_for_update())
_SUCCESS: Final = Statement(
    pull_through_cache_rules.update()
    .where(
        _r.id == bindparam("rule_id"),
        or_(_r.last_success_at.is_(None), _r.last_success_at < bindparam("now")),
    )
    .values(last_success_at=bindparam("now"))
)


def find_state(tx: Connection, rule_id: str) -> UpstreamState | None:
    """Return the state of a rule's upstream; None if none is stored."""
    return find_one(tx, UpstreamState, _STATE, rule_id=rule_id)


def find_states(tx: Connection, rule_ids: Sequence[str]) -> dict[str, UpstreamState]:
    """Map rule ids to the states of their upstreams; rules without a stored state are left out."""
    rows = tx.rows(_STATES, rule_ids=text_list(rule_ids))
    return {row[0]: UpstreamState(*row) for row in rows}


def list_faults(tx: Connection, rule_ids: Sequence[str], since: int) -> list[UpstreamFault]:
    """Return the faults of these rules that occurred since a time; for each rule, latest first."""
    return find_all(tx, UpstreamFault, _FAULTS, rule_ids=text_list(rule_ids), since=since)


def lock_rule(tx: Connection, rule_id: str) -> bool:
    """Lock the row of a rule; return False if there is none."""
    return tx.row(_RULE, rule_id=rule_id) is not None


def put_state(tx: Connection, state: UpstreamState) -> None:
    """Insert or replace the state of an upstream; the caller has locked the rule."""
    tx.execute(_PUT_STATE, **state._asdict())


def forget_state(tx: Connection, rule_id: str) -> None:
    """Delete the state of an upstream; the caller has locked the rule."""
    tx.execute(_FORGET, rule_id=rule_id)


def count_fault(tx: Connection, fault: UpstreamFault) -> None:
    """Insert a fault, or increment its count; the caller has locked the rule."""
    tx.execute(_COUNT_FAULT, **fault._asdict())


def note_success(tx: Connection, rule_id: str, now: int) -> None:
    """Set the time at which the upstream last answered."""
    tx.execute(_SUCCESS, rule_id=rule_id, now=now)

"""Event rules, which send events of an account's repositories to topics."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Select, bindparam, func, select

from cloudcore.db.base import Connection, Row
from cloudcore.db.rows import bound, count, given
from cloudcore.db.statement import Statement, paged
from cloudcore.identity.tables import accounts
from cloudcore.quotas.limits import Counted
from registry.metadata.control_tables import event_rules
from registry.quotas import EVENT_RULES

_e = event_rules.c


class EventRule(NamedTuple):
    """One rule of an account."""

    id: str
    account_id: str
    topic: str
    """CRN."""
    event_types: tuple[str, ...]
    """Each is an exact type, or a prefix followed by ``*``."""
    repository_prefix: str
    """Prefix of the names of its repositories; empty: all repositories."""
    created_at: int


class Rules(NamedTuple):
    """The event rules of an account."""

    handle: str
    """Handle of the account; empty if it has no rule."""
    rules: tuple[EventRule, ...]


def _columns() -> Select[Any]:
    return select(*(_e[name] for name in EventRule._fields)).where(given(_e.account_id))


_ALL: Final = Statement(
    _columns().add_columns(accounts.c.handle).join(accounts, accounts.c.id == _e.account_id)
)
_FIND: Final = Statement(_columns().where(given(_e.id)))
_LIST: Final = paged(_columns().where(_e.id > bindparam("after")).order_by(_e.id))
_number: Final = select(func.count()).select_from(event_rules).where(given(_e.account_id))
_COUNT: Final = Statement(_number)
COUNTED: Final = Counted(EVENT_RULES, _number)
_ADD: Final = Statement(event_rules.insert().values(bound(EventRule._fields)))
_REMOVE: Final = Statement(event_rules.delete().where(given(_e.account_id, _e.id)))


def find_rules(tx: Connection, account_id: str) -> Rules:
    """Return all rules of an account, with its handle."""
    rows = tx.rows(_ALL, account_id=account_id)
    return Rules(rows[0][-1] if rows else "", tuple(_rule(row[:-1]) for row in rows))


def find_rule(tx: Connection, account_id: str, rule_id: str) -> EventRule | None:
    """Return a rule of this account, or None."""
    row = tx.row(_FIND, account_id=account_id, id=rule_id)
    return _rule(row) if row else None


def list_rules(tx: Connection, account_id: str, after: str, limit: int) -> list[EventRule]:
    """Return up to `limit` rules of an account after the id `after`, oldest first."""
    rows = tx.rows(_LIST, account_id=account_id, after=after, limit=limit)
    return [_rule(row) for row in rows]


def count_rules(tx: Connection, account_id: str) -> int:
    """Return the number of rules of an account."""
    return count(tx, _COUNT, account_id=account_id)


def add_rule(tx: Connection, rule: EventRule) -> None:
    """Insert a rule."""
    values = rule._asdict()
    values["event_types"] = msgspec.json.encode(rule.event_types).decode()
    tx.execute(_ADD, **values)


def remove_rule(tx: Connection, account_id: str, rule_id: str) -> bool:
    """Remove a rule of this account; return False if there is none."""
    return tx.execute(_REMOVE, account_id=account_id, id=rule_id) == 1


def _rule(row: Row) -> EventRule:
    return EventRule(*row)._replace(event_types=msgspec.json.decode(row[3], type=tuple[str, ...]))

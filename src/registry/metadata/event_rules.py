"""The table of event rules, and their queries."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import UniqueConstraint

from cloudcore.db.base import Connection
from cloudcore.db.rows import given
from cloudcore.db.schema import ByteOrdered
from cloudcore.db.statement import Statement
from cloudcore.identity.tables import accounts
from cloudcore.resources.rows import Rows
from registry.metadata.event_rule import EVENT_RULE, EventRule

EVENT_RULES: Final = Rows(
    EVENT_RULE,
    types={"topic": ByteOrdered, "repository_prefix": ByteOrdered},
    unique=UniqueConstraint("account_id", "topic", "repository_prefix", "event_types"),
)
_e = EVENT_RULES.table.c


class Rules(NamedTuple):
    """An account's event rules, and its handle."""

    handle: str
    """The account's handle; empty if the account has no rule."""
    rules: tuple[EventRule, ...]


_ALL: Final = Statement(
    EVENT_RULES.columns.add_columns(accounts.c.handle)
    .join(accounts, accounts.c.id == _e.account_id)
    .where(given(_e.account_id))
)


def find_rules(tx: Connection, account_id: str) -> Rules:
    """Return all rules of an account, with its handle."""
    rows = tx.rows(_ALL, account_id=account_id)
    rules = tuple(EVENT_RULES.record_of(row[:-1]) for row in rows)
    return Rules(rows[0][-1] if rows else "", rules)

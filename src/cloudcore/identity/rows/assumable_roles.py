"""Queries that find a role to assume, by id, by CRN or by assignment."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Select, bindparam, literal_column, or_, select

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement, named, page
from cloudcore.identity.tables import accounts, role_assignments, roles

_r = roles.c
_a = accounts.c
_g = role_assignments.c


class AssumableRole(NamedTuple):
    """A role with its account."""

    id: str
    name: str
    trust_policy: str
    trust_ids: str
    max_session_seconds: int
    account_id: str
    handle: str
    account_status: str


COLUMNS: Final = (
    *(_r.id, _r.name, _r.trust_policy, _r.trust_ids, _r.max_session_seconds),
    *(_a.id, _a.handle, _a.status),
)
"""Those of an `AssumableRole`, of roles and accounts."""


def _where(*conditions: ColumnElement[bool]) -> Select[Any]:
    """Return the query for a role; it locks the trust policy until the transaction ends."""
    return (
        select(*COLUMNS)
        .join(accounts, _a.id == _r.account_id)
        .where(*conditions)
        .with_for_update(read=True, of=roles)
    )


_BY_ID: Final = Statement(_where(_r.id == bindparam("role_id")))
_NAMED: Final = Statement(
    _where(
        _r.name == bindparam("name"),
        or_(_a.id == bindparam("account"), _a.handle == bindparam("account")),
    )
)
_ASSIGNED: Final = Statement(
    page(
        _where(
            _r.name == bindparam("name"),
            _r.id.in_(select(_g.role_id).where(_g.user_id == bindparam("user_id"))),
        )
    )
)
_OF_PERSON: Final = _g.user_id == bindparam("user_id")
_LIST_ASSIGNED: Final = Statement(
    page(
        select(*COLUMNS)
        .select_from(role_assignments)
        .join(roles, _r.id == _g.role_id)
        .join(accounts, _a.id == _r.account_id)
        .where(_OF_PERSON, named(_r.name), _g.role_id > bindparam("after"))
        .order_by(_g.role_id)
    )
)
_IS_ASSIGNED: Final = Statement(
    select(literal_column("1"))
    .select_from(role_assignments)
    .where(_g.role_id == bindparam("role_id"), _g.user_id == bindparam("user_id"))
    .with_for_update(read=True)
)


def find_by_id(tx: Connection, role_id: str) -> AssumableRole | None:
    """Return a role of any account, or None."""
    row = tx.row(_BY_ID, role_id=role_id)
    return AssumableRole(*row) if row else None


def find_named(tx: Connection, account: str, name: str) -> AssumableRole | None:
    """Return the role of this name, or None; `account` is an id or a handle."""
    row = tx.row(_NAMED, account=account, name=name)
    return AssumableRole(*row) if row else None


def list_assigned_named(tx: Connection, user_id: str, name: str) -> list[AssumableRole]:
    """Return at most two roles of this name that are assigned to a person."""
    return [AssumableRole(*row) for row in tx.rows(_ASSIGNED, user_id=user_id, name=name, limit=2)]


def list_assigned(
    tx: Connection, user_id: str, name: str, after: str, limit: int
) -> list[AssumableRole]:
    """Return the roles assigned to a person, by id; if `name` is not empty, only those."""
    rows = tx.rows(_LIST_ASSIGNED, user_id=user_id, name=name, after=after, limit=limit)
    return [AssumableRole(*row) for row in rows]


def is_assigned(tx: Connection, role_id: str, user_id: str) -> bool:
    """Return True if a role is assigned to a person; it stays so until the transaction ends.

    So whoever unassigns it also ends the session for which this was asked.
    """
    return tx.row(_IS_ASSIGNED, role_id=role_id, user_id=user_id) is not None

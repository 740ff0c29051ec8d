"""Queries of roles and their assignments to persons."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sqlalchemy import Select, bindparam, func, null, select

from cloudcore.db.base import Connection
from cloudcore.db.rows import count, insert_new
from cloudcore.db.statement import Statement, page
from cloudcore.identity.rows.owned import OwnedRows
from cloudcore.identity.tables import accounts, role_assignments, roles, users

_r = roles.c
_g = role_assignments.c


class Role(NamedTuple):
    """A role's row."""

    id: str
    account_id: str
    name: str
    description: str
    trust_policy: str
    max_session_seconds: int
    created_at: int
    updated_at: int
    trust_ids: str = "{}"
    """The ids of the names in the trust policy, as JSON; see `identity.documents`."""
    last_used_at: int | None = None


class Assignment(NamedTuple):
    """The assignment of a role to a person."""

    role_id: str
    user_id: str
    created_at: int
    identity_provider_id: str | None = None
    """The provider one of whose groups has the role; None if it was assigned by hand."""


class Assigned(NamedTuple):
    """An assignment with the person's e-mail address and personal organization."""

    assignment: Assignment
    email: str
    personal_organization_id: str


ROLES: Final = OwnedRows(
    roles,
    Role,
    "role",
    ("description", "trust_policy", "trust_ids", "max_session_seconds", "updated_at"),
)
_ASSIGN: Final = Statement(insert_new(role_assignments, Assignment._fields))
_OF_ROLE: Final = _g.role_id == bindparam("role_id")


def _assignments() -> Select[Any]:
    return (
        select(*(_g[name] for name in Assignment._fields), users.c.email, users.c.organization_id)
        .join(users, users.c.id == _g.user_id)
        .where(_OF_ROLE)
    )


_FIND_ASSIGNMENT: Final = Statement(_assignments().where(_g.user_id == bindparam("user_id")))
_LIST_ASSIGNMENTS: Final = Statement(
    page(_assignments().where(_g.user_id > bindparam("after")).order_by(_g.user_id))
)
_COUNT_ASSIGNMENTS: Final = Statement(
    select(func.count()).select_from(role_assignments).where(_OF_ROLE)
)
_UNASSIGN: Final = Statement(
    role_assignments.delete().where(_OF_ROLE, _g.user_id == bindparam("user_id"))
)
_KEEP: Final = Statement(
    role_assignments.update()
    .where(
        _g.role_id == bindparam("held_role_id"),
        _g.user_id == bindparam("user_id"),
        _g.identity_provider_id.is_not(None),
    )
    .values(identity_provider_id=null())
)
_LIST_ASSIGNED: Final = Statement(
    select(_r.account_id, _r.id)
    .join(role_assignments, _g.role_id == _r.id)
    .join(accounts, accounts.c.id == _r.account_id)
    .where(
        _g.user_id == bindparam("user_id"),
        accounts.c.organization_id == bindparam("organization_id"),
    )
    .order_by(_r.account_id, _r.id)
)


def add_assignment(tx: Connection, assignment: Assignment) -> bool:
    """Insert an assignment; return False if the person has the role already."""
    return tx.execute(_ASSIGN, **assignment._asdict()) == 1


def keep_assignment(tx: Connection, role_id: str, user_id: str) -> bool:
    """Make a provider's assignment one that was made by hand; return False if there is none."""
    return tx.execute(_KEEP, held_role_id=role_id, user_id=user_id) == 1


def remove_assignment(tx: Connection, role_id: str, user_id: str) -> None:
    """Delete the assignment of a role to a person."""
    tx.execute(_UNASSIGN, role_id=role_id, user_id=user_id)


def list_roles_assigned(
    tx: Connection, user_id: str, organization_id: str
) -> list[tuple[str, str]]:
    """Return (account id, role id) of a person's roles in the accounts of an organization."""
    rows = tx.rows(_LIST_ASSIGNED, user_id=user_id, organization_id=organization_id)
    return [(row[0], row[1]) for row in rows]


def find_assignment(tx: Connection, role_id: str, user_id: str) -> Assigned | None:
    """Return the assignment of a role to a person, or None."""
    row = tx.row(_FIND_ASSIGNMENT, role_id=role_id, user_id=user_id)
    return _assigned(row) if row else None


def list_assignments(tx: Connection, role_id: str, after: str, limit: int) -> list[Assigned]:
    """Return the assignments of a role, by the person's id."""
    rows = tx.rows(_LIST_ASSIGNMENTS, role_id=role_id, after=after, limit=limit)
    return [_assigned(row) for row in rows]


def count_assignments(tx: Connection, role_id: str) -> int:
    """Count the persons a role is assigned to."""
    return count(tx, _COUNT_ASSIGNMENTS, role_id=role_id)


def _assigned(row: tuple[Any, ...]) -> Assigned:
    return Assigned(Assignment(*row[:-2]), row[-2], row[-1])

"""Queries of roles and their assignments to persons."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import bindparam, null, select

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
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
    email: str = ""
    """Of the person; not stored here."""
    personal_organization_id: str = ""


ROLES: Final = OwnedRows(
    roles,
    Role,
    "role",
    ("description", "trust_policy", "trust_ids", "max_session_seconds", "updated_at"),
)
ASSIGNMENTS: Final = OwnedRows(
    role_assignments,
    Assignment,
    "assignment",
    owner="role_id",
    key="user_id",
    label="user_id",
    computed=("email", "personal_organization_id"),
    query=select(
        *(_g.role_id, _g.user_id, _g.created_at, _g.identity_provider_id),
        *(users.c.email, users.c.organization_id),
    ).join(users, users.c.id == _g.user_id),
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


def keep_assignment(tx: Connection, role_id: str, user_id: str) -> bool:
    """Make a provider's assignment one that was made by hand; return False if there is none."""
    return tx.execute(_KEEP, held_role_id=role_id, user_id=user_id) == 1


def list_roles_assigned(
    tx: Connection, user_id: str, organization_id: str
) -> list[tuple[str, str]]:
    """Return (account id, role id) of a person's roles in the accounts of an organization."""
    rows = tx.rows(_LIST_ASSIGNED, user_id=user_id, organization_id=organization_id)
    return [(row[0], row[1]) for row in rows]

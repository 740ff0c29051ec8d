"""Queries of roles assigned to groups of an identity provider, and to its persons for that."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from sqlalchemy import bindparam, select

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.identity.provider_tables import group_assignments
from cloudcore.identity.rows.owned import OwnedRows
from cloudcore.identity.tables import role_assignments, roles

_g = group_assignments.c
_a = role_assignments.c


class GroupAssignment(NamedTuple):
    """A role that the persons of a provider's group have."""

    id: str
    role_id: str
    provider_id: str
    group_name: str
    created_at: int


class RoleOfAccount(NamedTuple):
    """A role, with its account."""

    account_id: str
    role_id: str


GROUP_ASSIGNMENTS: Final = OwnedRows(
    group_assignments, GroupAssignment, "group assignment", (), owner="role_id", label="id"
)
_OF_PROVIDER: Final = Statement(
    select(roles.c.account_id, _g.role_id, _g.group_name)
    .join(roles, roles.c.id == _g.role_id)
    .where(_g.provider_id == bindparam("provider_id"))
    .order_by(roles.c.account_id, _g.role_id)
)
_GIVEN: Final = (
    select(roles.c.account_id, _a.role_id, _a.user_id)
    .join(roles, roles.c.id == _a.role_id)
    .where(_a.identity_provider_id == bindparam("provider_id"))
    .order_by(roles.c.account_id, _a.role_id)
)
_GIVEN_TO: Final = Statement(_GIVEN.where(_a.user_id == bindparam("user_id")))
_GIVEN_OF_ROLE: Final = Statement(_GIVEN.where(_a.role_id == bindparam("role_id")))
_GIVEN_TO_ALL: Final = Statement(_GIVEN)


def roles_of_groups(
    tx: Connection, provider_id: str, groups: Collection[str]
) -> list[RoleOfAccount]:
    """Return the roles that any of these groups of a provider has, by account, each once."""
    rows = tx.rows(_OF_PROVIDER, provider_id=provider_id)
    found = {RoleOfAccount(row[0], row[1]): None for row in rows if row[2] in groups}
    return [*found]


def roles_given_to(tx: Connection, provider_id: str, user_id: str) -> list[RoleOfAccount]:
    """Return the roles that a person has for a group of the provider, by account."""
    rows = tx.rows(_GIVEN_TO, provider_id=provider_id, user_id=user_id)
    return [RoleOfAccount(row[0], row[1]) for row in rows]


def persons_given(
    tx: Connection, provider_id: str, role_id: str | None = None
) -> list[tuple[RoleOfAccount, str]]:
    """Return all roles (or one) that persons have for a group of the provider, with the person."""
    if role_id is None:
        rows = tx.rows(_GIVEN_TO_ALL, provider_id=provider_id)
    else:
        rows = tx.rows(_GIVEN_OF_ROLE, provider_id=provider_id, role_id=role_id)
    return [(RoleOfAccount(row[0], row[1]), row[2]) for row in rows]

"""Queries of roles, and of the assignments of roles to persons and groups."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Select, bindparam, null, or_, select

from cloudcore.db.base import Connection
from cloudcore.db.rows import ONE, find_all, find_one, given
from cloudcore.db.statement import Statement, named, page
from cloudcore.identity.names import iam_crn
from cloudcore.identity.rows.owned import OwnedRows
from cloudcore.identity.tables import accounts, group_assignments, role_assignments, roles, users
from cloudcore.web.bodies import ResourceRef
from cloudcore.web.organization_scope import account_ref

_r = roles.c
_a = accounts.c
_p = group_assignments.c
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
    """The ids of the names in the trust policy, as JSON; see `rights.documents`."""
    last_used_at: int | None = None


class Assignment(NamedTuple):
    """The assignment of a role to a person."""

    role_id: str
    user_id: str
    created_at: int
    identity_provider_id: str | None = None
    """Id of the provider whose group gave the person the role; None for a manual assignment."""
    email: str = ""
    """The person's e-mail address, which is not stored in this row."""
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
_MAKE_ASSIGNMENT_MANUAL: Final = Statement(
    role_assignments.update()
    .where(
        _g.role_id == bindparam("held_role_id"),
        _g.user_id == bindparam("user_id"),
        _g.identity_provider_id.is_not(None),
    )
    .values(identity_provider_id=null())
)
_LIST_ROLES_ASSIGNED: Final = Statement(
    select(_r.account_id, _r.id)
    .join(role_assignments, _g.role_id == _r.id)
    .join(accounts, _a.id == _r.account_id)
    .where(given(_g.user_id, _a.organization_id))
    .order_by(_r.account_id, _r.id)
)


class GroupAssignment(NamedTuple):
    """The assignment of a role to a provider's group."""

    id: str
    role_id: str
    provider_id: str
    group_name: str
    created_at: int


GROUP_ASSIGNMENTS: Final = OwnedRows(
    group_assignments, GroupAssignment, "group assignment", (), owner="role_id", label="id"
)
_LIST_ROLES_OF_PROVIDER: Final = Statement(
    select(_r.account_id, _p.role_id, _p.group_name)
    .join(roles, _r.id == _p.role_id)
    .where(given(_p.provider_id))
    .order_by(_r.account_id, _p.role_id)
)
_GIVEN: Final = Statement(
    select(_r.account_id, _g.role_id, _g.user_id)
    .join(roles, _r.id == _g.role_id)
    .where(
        _g.identity_provider_id == bindparam("provider_id"),
        named(_g.role_id, "role_id"),
        named(_g.user_id, "user_id"),
    )
    .order_by(_r.account_id, _g.role_id)
)


def roles_of_groups(
    tx: Connection, provider_id: str, groups: Collection[str]
) -> Sequence[tuple[str, str]]:
    """Return (account id, role id) of the roles assigned to any of these groups of a provider."""
    rows = tx.rows(_LIST_ROLES_OF_PROVIDER, provider_id=provider_id)
    return [(row[0], row[1]) for row in rows if row[2] in groups]


def assignments_of_groups(
    tx: Connection, provider_id: str, *, role_id: str = "", user_id: str = ""
) -> Sequence[tuple[str, str, str]]:
    """Return (account id, role id, user id) of the assignments that a provider's groups made.

    They are sorted by account and role; `role_id` and `user_id` filter them if not empty.
    """
    rows = tx.rows(_GIVEN, provider_id=provider_id, role_id=role_id, user_id=user_id)
    return [(row[0], row[1], row[2]) for row in rows]


class AssumableRole(NamedTuple):
    """A role with its account, as needed to assume it."""

    id: str
    name: str
    trust_policy: str
    trust_ids: str
    max_session_seconds: int
    account_id: str
    handle: str
    account_status: str

    @property
    def crn(self) -> str:
        """Return the role's CRN."""
        return iam_crn(self.account_id, "role", self.name)

    @property
    def account(self) -> ResourceRef:
        """Return the reference to the account in which the role acts; its name is the handle."""
        return account_ref(self.account_id, self.handle)


COLUMNS: Final = (
    *(_r.id, _r.name, _r.trust_policy, _r.trust_ids, _r.max_session_seconds),
    *(_a.id, _a.handle, _a.status),
)
"""The columns of roles and accounts that make an `AssumableRole`."""


def _where(*conditions: ColumnElement[bool]) -> Select[Any]:
    return select(*COLUMNS).join(accounts, _a.id == _r.account_id).where(*conditions)


_BY_ID: Final = _where(_r.id == bindparam("role_id"))
_FIND_BY_ID: Final = Statement(_BY_ID)
_LOCK_BY_ID: Final = Statement(_BY_ID.with_for_update(read=True, of=roles))
_FIND_NAMED: Final = Statement(
    _where(given(_r.name), or_(_a.id == bindparam("account"), _a.handle == bindparam("account")))
)
_OF_PERSON: Final = given(_g.user_id)
_LIST_ASSIGNED_NAMED: Final = Statement(
    page(_where(given(_r.name), _r.id.in_(select(_g.role_id).where(_OF_PERSON))))
)
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
_ASSIGNED: Final = select(ONE).select_from(role_assignments).where(given(_g.role_id, _g.user_id))
_IS_ASSIGNED: Final = Statement(_ASSIGNED)
_LOCK_ASSIGNED: Final = Statement(_ASSIGNED.with_for_update(read=True))


def make_assignment_manual(tx: Connection, role_id: str, user_id: str) -> bool:
    """Turn an assignment by a provider's group into a manual one; return False if none exists."""
    return tx.execute(_MAKE_ASSIGNMENT_MANUAL, held_role_id=role_id, user_id=user_id) == 1


def list_roles_assigned(
    tx: Connection, user_id: str, organization_id: str
) -> list[tuple[str, str]]:
    """Return (account id, role id) of a person's roles in the accounts of an organization."""
    rows = tx.rows(_LIST_ROLES_ASSIGNED, user_id=user_id, organization_id=organization_id)
    return [(row[0], row[1]) for row in rows]


def find_role(tx: Connection, role_id: str) -> AssumableRole | None:
    """Return a role of any account, or None."""
    return find_one(tx, AssumableRole, _FIND_BY_ID, role_id=role_id)


def lock_role(tx: Connection, role_id: str) -> AssumableRole | None:
    """Return a role of any account, locked until the transaction ends (shared), or None.

    If you also lock the role's account, lock the account first.
    """
    return find_one(tx, AssumableRole, _LOCK_BY_ID, role_id=role_id)


def find_role_named(tx: Connection, account: str, name: str) -> AssumableRole | None:
    """Return the role with this name, or None; `account` is an id or a handle."""
    return find_one(tx, AssumableRole, _FIND_NAMED, account=account, name=name)


def list_assigned_named(tx: Connection, user_id: str, name: str, limit: int) -> list[AssumableRole]:
    """List the roles with this name, of any account, that are assigned to a person."""
    return find_all(
        tx, AssumableRole, _LIST_ASSIGNED_NAMED, user_id=user_id, name=name, limit=limit
    )


def list_assigned(
    tx: Connection, user_id: str, name: str, after: str, limit: int
) -> list[AssumableRole]:
    """List the roles assigned to a person, sorted by id; a non-empty `name` selects one name."""
    return find_all(
        tx, AssumableRole, _LIST_ASSIGNED, user_id=user_id, name=name, after=after, limit=limit
    )


def is_assigned(tx: Connection, role_id: str, user_id: str) -> bool:
    """Return True if a role is assigned to a person."""
    return tx.row(_IS_ASSIGNED, role_id=role_id, user_id=user_id) is not None


def lock_assignment(tx: Connection, role_id: str, user_id: str) -> None:
    """Lock a person's assignment of a role for the transaction, if there is one.

    So an unassignment must wait, and then ends the sessions that were started in this transaction.
    """
    tx.row(_LOCK_ASSIGNED, role_id=role_id, user_id=user_id)

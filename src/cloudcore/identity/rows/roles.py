"""Queries of roles: to assume them, and their assignments to persons and groups."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Select, bindparam, null, or_, select

from cloudcore.db.base import Connection
from cloudcore.db.calls import Execute, Exists, Find, FindAll, whole
from cloudcore.db.rows import ONE, given
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
    """The provider one of whose groups has the role; None for a manual assignment."""
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
make_assignment_manual: Final = Execute[str, str](
    role_assignments.update()
    .where(
        _g.role_id == bindparam("held_role_id"),
        _g.user_id == bindparam("user_id"),
        _g.identity_provider_id.is_not(None),
    )
    .values(identity_provider_id=null()),
    *("held_role_id", "user_id"),
)
"""Turns a provider's assignment into a manual one; changes nothing if there is none."""
list_roles_assigned: Final = FindAll[tuple[str, str], str, str](
    whole,
    select(_r.account_id, _r.id)
    .join(role_assignments, _g.role_id == _r.id)
    .join(accounts, _a.id == _r.account_id)
    .where(given(_g.user_id, _a.organization_id))
    .order_by(_r.account_id, _r.id),
    *("user_id", "organization_id"),
)
"""Lists (account id, role id) of a person's roles in the accounts of an organization."""


class GroupAssignment(NamedTuple):
    """A role that the persons of a provider's group have."""

    id: str
    role_id: str
    provider_id: str
    group_name: str
    created_at: int


GROUP_ASSIGNMENTS: Final = OwnedRows(
    group_assignments, GroupAssignment, "group assignment", (), owner="role_id", label="id"
)
_list_roles_of_provider: Final = FindAll[tuple[str, str, str], str](
    whole,
    select(_r.account_id, _p.role_id, _p.group_name)
    .join(roles, _r.id == _p.role_id)
    .where(given(_p.provider_id))
    .order_by(_r.account_id, _p.role_id),
    "provider_id",
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
    """Return (account id, role id) of the roles that any of these groups of a provider has."""
    return [row[:2] for row in _list_roles_of_provider(tx, provider_id) if row[2] in groups]


def assignments_of_groups(
    tx: Connection, provider_id: str, *, role_id: str = "", user_id: str = ""
) -> Sequence[tuple[str, str, str]]:
    """Return (account id, role id, person's id) of the assignments by a provider's groups.

    They are sorted by account and role; `role_id` and `user_id` select those of one.
    """
    rows = tx.rows(_GIVEN, provider_id=provider_id, role_id=role_id, user_id=user_id)
    return [(row[0], row[1], row[2]) for row in rows]


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

    @property
    def crn(self) -> str:
        """Return its CRN."""
        return iam_crn(self.account_id, "role", self.name)

    @property
    def account(self) -> ResourceRef:
        """Return the reference to the account in which it acts; the name is the handle."""
        return account_ref(self.account_id, self.handle)


COLUMNS: Final = (
    *(_r.id, _r.name, _r.trust_policy, _r.trust_ids, _r.max_session_seconds),
    *(_a.id, _a.handle, _a.status),
)
"""The columns of an `AssumableRole`, of roles and accounts."""


def _where(*conditions: ColumnElement[bool]) -> Select[Any]:
    """Return the query for a role; it locks the trust policy until the transaction ends."""
    return (
        select(*COLUMNS)
        .join(accounts, _a.id == _r.account_id)
        .where(*conditions)
        .with_for_update(read=True, of=roles)
    )


find_by_id: Final = Find[AssumableRole, str](
    AssumableRole, _where(_r.id == bindparam("role_id")), "role_id"
)
"""Finds a role of any account."""
find_named: Final = Find[AssumableRole, str, str](
    AssumableRole,
    _where(given(_r.name), or_(_a.id == bindparam("account"), _a.handle == bindparam("account"))),
    *("account", "name"),
)
"""Finds the role of this name; the account is given by its id or its handle."""
_OF_PERSON: Final = given(_g.user_id)
list_assigned_named: Final = FindAll[AssumableRole, str, str, int](
    AssumableRole,
    page(_where(given(_r.name), _r.id.in_(select(_g.role_id).where(_OF_PERSON)))),
    *("user_id", "name", "limit"),
)
"""Lists roles of this name that are assigned to a person."""
list_assigned: Final = FindAll[AssumableRole, str, str, str, int](
    AssumableRole,
    page(
        select(*COLUMNS)
        .select_from(role_assignments)
        .join(roles, _r.id == _g.role_id)
        .join(accounts, _a.id == _r.account_id)
        .where(_OF_PERSON, named(_r.name), _g.role_id > bindparam("after"))
        .order_by(_g.role_id)
    ),
    *("user_id", "name", "after", "limit"),
)
"""Lists the roles assigned to a person, by id; if the name is not empty, only those."""
is_assigned: Final = Exists[str, str](
    select(ONE)
    .select_from(role_assignments)
    .where(given(_g.role_id, _g.user_id))
    .with_for_update(read=True),
    *("role_id", "user_id"),
)
"""Tells if a role is assigned to a person; it stays so until the transaction ends.

So an unassignment that commits later ends the sessions started in this transaction."""

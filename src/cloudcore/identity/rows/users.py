"""Queries of persons."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sqlalchemy import bindparam, false, func, select

from cloudcore.db.base import Connection
from cloudcore.db.rows import columns, find_one
from cloudcore.db.statement import Statement, paged
from cloudcore.identity.rows.owned import Listed, OwnedRows
from cloudcore.identity.tables import memberships, organizations, users

_u = users.c
_m = memberships.c


class User(NamedTuple):
    """A person who signs in by e-mail address and password."""

    id: str
    email: str
    """In lower case."""
    password: str
    """Hash from `cloudcore.iam.passwords`."""
    must_change_password: bool
    organization_id: str
    """The personal organization."""
    status: str
    created_at: int
    updated_at: int
    home_organization_id: str | None = None
    """The organization that added the person; it can add each e-mail address once."""


def new_user(
    user_id: str,
    email: str,
    password: str,
    organization_id: str,
    now: int,
    *,
    must_change_password: bool = True,
) -> User:
    """Return a new person, whose personal organization is `organization_id`."""
    state = (must_change_password, organization_id, "active", now, now)
    return User(user_id, email, password, *state)


def _user(*row: Any) -> User:  # noqa: ANN401 - of a database
    user = User(*row)
    return user._replace(must_change_password=bool(user.must_change_password))


_every = columns(users, User._fields)
USERS: Final = OwnedRows(
    users,
    User,
    "user",
    ("password", "must_change_password", "status", "updated_at"),
    owner="organization_id",
    label="email",
    read=_user,
)
"""Persons, each the owner of a personal organization."""
_FIND: Final = Statement(_every.where(_u.id == bindparam("id")))
_LIST_BY_EMAIL: Final = Statement(
    _every.where(_u.email == bindparam("email")).order_by(_u.created_at, _u.id)
)
_FIND_PASSWORD: Final = paged(
    select(_u.password).where(_u.email == bindparam("email")).order_by(_u.created_at, _u.id)
)
_FIND_ADDED: Final = Statement(
    select(_u.id).where(
        _u.home_organization_id == bindparam("organization_id"), _u.email == bindparam("email")
    )
)
PEOPLE: Final = Listed(
    _every.join(memberships, _m.user_id == _u.id),
    _user,
    "user",
    of=_m.organization_id == bindparam("owner"),
    key=_u.id,
    label=_m.email,
    order=_u.id,
    sorted_by="id",
    counted=select(func.count()).select_from(memberships),
)
"""The members of organizations, suspended or not, by e-mail address (in lower case)."""
_COUNT_OTHER_MEMBERSHIPS: Final = Statement(
    select(func.count())
    .select_from(memberships)
    .join(users, _u.id == _m.user_id)
    .where(
        _m.user_id == bindparam("user_id"),
        _m.organization_id != bindparam("organization_id"),
        _m.organization_id != _u.organization_id,
    )
)
_other: Final = memberships.alias("other")
_SHARED: Final = paged(
    select(_m.organization_id)
    .join(_other, _other.c.organization_id == _m.organization_id)
    .join(organizations, organizations.c.id == _m.organization_id)
    .where(
        _m.user_id == bindparam("user_id"),
        _other.c.user_id == bindparam("other_id"),
        organizations.c.is_personal.is_(false()),
    )
    # Owners first: 'owner' is the last of the roles in alphabetical order.
    .order_by(_m.role.desc(), _m.organization_id)
)
_LOCK: Final = Statement(select(_u.status).where(_u.id == bindparam("id")).with_for_update())
_DELETE_MEMBERSHIPS: Final = Statement(memberships.delete().where(_m.user_id == bindparam("id")))
_DELETE: Final = Statement(users.delete().where(_u.id == bindparam("id")))


def find_user(tx: Connection, user_id: str) -> User | None:
    """Return a person of any organization, or None."""
    return find_one(tx, _user, _FIND, id=user_id)


def list_users_by_email(tx: Connection, email: str) -> list[User]:
    """Return all persons with an e-mail address (in lower case), oldest first."""
    return [_user(*row) for row in tx.rows(_LIST_BY_EMAIL, email=email)]


def find_password_by_email(tx: Connection, email: str) -> str | None:
    """Return the password hash of the oldest person with an e-mail address, or None."""
    return find_one(tx, str, _FIND_PASSWORD, email=email, limit=1)


def has_added(tx: Connection, organization_id: str, email: str) -> bool:
    """Return True if an organization has added a person with this address, still member or not."""
    return tx.row(_FIND_ADDED, organization_id=organization_id, email=email) is not None


def is_member_elsewhere(tx: Connection, user_id: str, organization_id: str) -> bool:
    """Return True if a person has joined another organization besides the personal one."""
    row = tx.row(_COUNT_OTHER_MEMBERSHIPS, user_id=user_id, organization_id=organization_id)
    return row is not None and row[0] > 0


def find_shared_organization(tx: Connection, user_id: str, other_id: str) -> str | None:
    """Return an organization that both persons have joined, preferably owned by the first, or None.

    Personal organizations do not count.
    """
    return find_one(tx, str, _SHARED, user_id=user_id, other_id=other_id, limit=1)


def lock_user(tx: Connection, user_id: str) -> str | None:
    """Lock a person; return the status, or None if there is no such person.

    To lock an organization too, lock that first.
    """
    return find_one(tx, str, _LOCK, id=user_id)


def remove_user(tx: Connection, user_id: str) -> None:
    """Delete a person with memberships, role assignments and sessions."""
    tx.execute(_DELETE_MEMBERSHIPS, id=user_id)
    tx.execute(_DELETE, id=user_id)

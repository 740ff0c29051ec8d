"""Queries of persons."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import bindparam, func, select

from cloudcore.db.base import Connection
from cloudcore.db.rows import columns_of, count, find_all, find_one
from cloudcore.db.statement import Statement, paged
from cloudcore.iam.principal import SourceIdentity
from cloudcore.identity.names import person_crn
from cloudcore.identity.rows.owned import Listed, OwnedRows
from cloudcore.identity.tables import memberships, users

_u = users.c
_m = memberships.c


class User(NamedTuple):
    """A person, who signs in by password or at an identity provider."""

    id: str
    email: str
    """The e-mail address in lower case."""
    password: str
    """A scrypt string from `cloudcore.iam.passwords`."""
    organization_id: str
    """Id of the personal organization."""
    created_at: int
    updated_at: int
    must_change_password: bool = True
    status: str = "active"
    home_organization_id: str | None = None
    """The organization that added the person, which can add each e-mail address once; None if the
    organization was deleted."""

    @property
    def crn(self) -> str:
        """Return the person's CRN."""
        return person_crn(self.organization_id, self.id)

    @property
    def source(self) -> SourceIdentity:
        """Return the person as the source of a request."""
        return SourceIdentity(self.crn, self.email)


_every = columns_of(users, User._fields)
USERS: Final = OwnedRows(
    users,
    User,
    "user",
    ("password", "must_change_password", "status", "updated_at"),
    owner="id",
    label="email",
)
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
    User,
    "user",
    of=_m.organization_id == bindparam("owner"),
    key=_u.id,
    label=_m.email,
    order=_u.id,
    counted=select(func.count()).select_from(memberships),
)
"""The members of an organization, suspended or not; the label is the e-mail address."""
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
_LOCK: Final = Statement(select(_u.status).where(_u.id == bindparam("id")).with_for_update())


def find_user(tx: Connection, user_id: str) -> User | None:
    """Return a person of any organization, or None."""
    return USERS.find(tx, user_id, user_id)


def list_users_by_email(tx: Connection, email: str) -> list[User]:
    """Return all persons with an e-mail address (in lower case), oldest first."""
    return find_all(tx, USERS.row, _LIST_BY_EMAIL, email=email)


def find_password_by_email(tx: Connection, email: str) -> str | None:
    """Return the password hash of the oldest person with an e-mail address, or None."""
    return find_one(tx, str, _FIND_PASSWORD, email=email, limit=1)


def has_added(tx: Connection, organization_id: str, email: str) -> bool:
    """Return True if an organization has added a person with this address, even one who left."""
    return tx.row(_FIND_ADDED, organization_id=organization_id, email=email) is not None


def is_member_elsewhere(tx: Connection, user_id: str, organization_id: str) -> bool:
    """Return True if a person is a member of an organization besides this and the personal one."""
    of = {"user_id": user_id, "organization_id": organization_id}
    return count(tx, _COUNT_OTHER_MEMBERSHIPS, **of) > 0


def lock_user(tx: Connection, user_id: str) -> str | None:
    """Lock a person; return the person's status, or None if there is no such person.

    If you also lock an organization, lock the organization first.
    """
    return find_one(tx, str, _LOCK, id=user_id)

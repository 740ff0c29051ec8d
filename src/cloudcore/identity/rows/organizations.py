"""Queries of organizations, memberships and invitations."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sqlalchemy import bindparam, false, func, select, text

from cloudcore.db.base import Connection
from cloudcore.db.rows import count, deletion, given, insert_new
from cloudcore.db.statement import Statement
from cloudcore.identity.rows.owned import Listed, OwnedRows
from cloudcore.identity.tables import invitations, memberships, organizations, users

_o = organizations.c
_m = memberships.c


class Organization(NamedTuple):
    """An organization, the owner of accounts."""

    id: str
    name: str
    is_personal: bool
    created_at: int
    updated_at: int


class Membership(NamedTuple):
    """A person's role in an organization."""

    organization_id: str
    user_id: str
    role: str
    created_at: int
    email: str = ""
    """Of the person."""
    personal_organization_id: str = ""


class Joined(NamedTuple):
    """An organization with one person's role in it."""

    id: str
    name: str
    is_personal: bool
    created_at: int
    updated_at: int
    user_id: str
    role: str


def _joined(*row: Any) -> Joined:  # noqa: ANN401 - of a database
    found = Joined(*row)
    return found._replace(is_personal=bool(found.is_personal))


MEMBERS: Final = OwnedRows(
    memberships,
    Membership,
    "member",
    ("role",),
    owner="organization_id",
    key="user_id",
    label="email",
    sorted_by="user_id",
    query=select(*(_m[name] for name in Membership._fields[:-1]), users.c.organization_id).join(
        users, users.c.id == _m.user_id
    ),
    computed=("email", "personal_organization_id"),
    looked_up={
        "email": select(users.c.email).where(users.c.id == bindparam("user_id")).scalar_subquery()
    },
)
JOINED: Final = Listed(
    select(*(_o[name] for name in Organization._fields), _m.user_id, _m.role).join(
        memberships, _m.organization_id == _o.id
    ),
    _joined,
    "organization",
    of=_m.user_id == bindparam("owner"),
    key=_o.id,
    label=_o.name,
    order=_o.id,
    sorted_by="id",
)
_ADD: Final = Statement(insert_new(organizations, Organization._fields))
_LOCK: Final = Statement(
    select(_o.id).where(_o.id == bindparam("organization_id")).with_for_update()
)
_RENAME: Final = Statement(
    organizations.update()
    .where(_o.id == bindparam("organization_id"))
    .values(name=bindparam("name"), updated_at=bindparam("updated_at"))
)
_DELETE: Final = Statement(organizations.delete().where(_o.id == bindparam("organization_id")))
_DELETE_MEMBERSHIPS: Final = Statement(
    memberships.delete().where(_m.organization_id == bindparam("organization_id"))
)
_OF_ORGANIZATION: Final = _m.organization_id == bindparam("organization_id")
_COUNT_OTHER_OWNERS: Final = Statement(
    select(func.count())
    .select_from(memberships)
    .join(users, users.c.id == _m.user_id)
    .where(
        _OF_ORGANIZATION,
        _m.role == text("'owner'"),
        _m.user_id != bindparam("user_id"),
        users.c.status == text("'active'"),
    )
)
_COUNT_OWNED: Final = Statement(
    select(func.count())
    .select_from(memberships)
    .join(organizations, _o.id == _m.organization_id)
    .where(
        _m.user_id == bindparam("user_id"),
        _m.role == text("'owner'"),
        _o.is_personal.is_(false()),
    )
)


def add_organization(tx: Connection, organization: Organization) -> None:
    """Insert an organization; add its first owner's membership in the same transaction."""
    tx.execute(_ADD, **organization._asdict())


def lock_if_exists(tx: Connection, organization_id: str) -> bool:
    """Lock an organization until the transaction ends; return False if it does not exist.

    To lock an account too (`increment_revision`), do so afterwards.
    """
    return tx.row(_LOCK, organization_id=organization_id) is not None


def save_organization_name(tx: Connection, organization_id: str, name: str, now: int) -> None:
    """Rename an organization."""
    tx.execute(_RENAME, organization_id=organization_id, name=name, updated_at=now)


def remove_organization(tx: Connection, organization_id: str) -> None:
    """Delete an organization that owns nothing, with its memberships."""
    tx.execute(_DELETE_MEMBERSHIPS, organization_id=organization_id)
    tx.execute(_DELETE, organization_id=organization_id)


def count_other_owners(tx: Connection, organization_id: str, user_id: str) -> int:
    """Count the other owners who can sign in."""
    return count(tx, _COUNT_OTHER_OWNERS, organization_id=organization_id, user_id=user_id)


def count_owned(tx: Connection, user_id: str) -> int:
    """Count the organizations a person owns, without the personal one."""
    return count(tx, _COUNT_OWNED, user_id=user_id)


_i = invitations.c


class Invitation(NamedTuple):
    """An invitation to join; only the hash of its code is stored."""

    id: str
    organization_id: str
    email: str
    """In lower case."""
    role: str
    code_sha256: str
    created_at: int
    expires_at: int


INVITATIONS: Final = OwnedRows(
    invitations, Invitation, "invitation", (), owner="organization_id", label="email"
)
_REPLACE: Final = Statement(invitations.delete().where(given(_i.organization_id, _i.email)))
forget_invitations: Final = deletion(_i.expires_at)
"""Deletes a batch of the expired invitations."""


def put_invitation(tx: Connection, invitation: Invitation) -> None:
    """Insert an invitation, replacing the organization's earlier one for the address."""
    tx.execute(_REPLACE, organization_id=invitation.organization_id, email=invitation.email)
    INVITATIONS.add(tx, invitation)

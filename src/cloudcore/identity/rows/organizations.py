"""Queries of organizations, memberships and invitations."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import bindparam, false, func, select, text

from cloudcore.db.base import Connection
from cloudcore.db.rows import count, deletion, find_one, given
from cloudcore.db.statement import Statement, paged
from cloudcore.identity.names import iam_crn, person_crn
from cloudcore.identity.rows.owned import Listed, OwnedRows
from cloudcore.identity.tables import invitations, memberships, organizations, users
from cloudcore.web.bodies import ResourceRef

_o = organizations.c
_m = memberships.c


class Organization(NamedTuple):
    """An organization, the owner of accounts."""

    id: str
    name: str
    created_at: int
    updated_at: int
    is_personal: bool = False


class Membership(NamedTuple):
    """A person's role in an organization."""

    organization_id: str
    user_id: str
    role: str
    created_at: int
    email: str = ""
    """The person's e-mail address."""
    personal_organization_id: str = ""

    @property
    def user(self) -> ResourceRef:
        """Return the reference to the member."""
        crn = person_crn(self.personal_organization_id, self.user_id)
        return ResourceRef(id=self.user_id, crn=crn, name=self.email)


class Joined(NamedTuple):
    """An organization with one person's role in it."""

    id: str
    name: str
    created_at: int
    updated_at: int
    is_personal: bool
    user_id: str
    role: str

    @property
    def crn(self) -> str:
        """Return the organization's CRN."""
        return iam_crn(self.id, "organization", self.id)


ORGANIZATIONS: Final = OwnedRows(
    organizations, Organization, "organization", ("name", "updated_at"), owner="id"
)
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
_joined = select(*(_o[name] for name in Organization._fields), _m.user_id, _m.role).join(
    memberships, _m.organization_id == _o.id
)
JOINED: Final = Listed(
    _joined,
    Joined,
    "organization",
    of=_m.user_id == bindparam("owner"),
    key=_o.id,
    label=_o.name,
    order=_o.id,
)
_other: Final = memberships.alias("other")
_SHARED: Final = paged(
    _joined.join(_other, _other.c.organization_id == _o.id)
    .where(
        _m.user_id == bindparam("user_id"),
        _other.c.user_id == bindparam("other_id"),
        _o.is_personal.is_(false()),
    )
    # Owners first: 'owner' is the last of the roles in alphabetical order.
    .order_by(_m.role.desc(), _o.id)
)
_LOCK: Final = Statement(
    select(_o.id).where(_o.id == bindparam("organization_id")).with_for_update(key_share=True)
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


def lock_if_exists(tx: Connection, organization_id: str) -> bool:
    """Lock an organization until the transaction ends; return False if it does not exist.

    The lock does not block foreign keys: PostgreSQL checks an account's again when a transaction
    updates the account twice, and that transaction has locked the account first.

    If you also lock an account (`increment_revision`), lock the organization first.
    """
    return tx.row(_LOCK, organization_id=organization_id) is not None


def find_shared_organization(tx: Connection, user_id: str, other_id: str) -> Joined | None:
    """Return an organization that both persons have joined, or None; personal ones do not count.

    Prefer an organization that the person `user_id` owns.
    """
    return find_one(tx, JOINED.row, _SHARED, user_id=user_id, other_id=other_id, limit=1)


def count_other_owners(tx: Connection, organization_id: str, user_id: str) -> int:
    """Count the owners of an organization, except `user_id`, who are not suspended."""
    return count(tx, _COUNT_OTHER_OWNERS, organization_id=organization_id, user_id=user_id)


def count_owned(tx: Connection, user_id: str) -> int:
    """Count the organizations that a person owns, without the personal one."""
    return count(tx, _COUNT_OWNED, user_id=user_id)


_i = invitations.c


class Invitation(NamedTuple):
    """An invitation to join; only the hash of its code is stored."""

    id: str
    organization_id: str
    email: str
    """The e-mail address of the invited person, in lower case."""
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

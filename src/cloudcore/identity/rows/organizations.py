"""Queries of organizations and their memberships."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Select, bindparam, false, func, select, text
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection, Row
from cloudcore.db.rows import count, insert_new
from cloudcore.db.statement import Statement, listed, named, page, text_list
from cloudcore.identity.tables import memberships, organizations, users

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


class Member(NamedTuple):
    """A membership with the person's e-mail address and personal organization."""

    membership: Membership
    email: str
    personal_organization_id: str


class Joined(NamedTuple):
    """An organization with one person's membership in it."""

    organization: Organization
    membership: Membership


def _membership_columns() -> list[Any]:
    return [_m[name] for name in Membership._fields]


_ADD: Final = Statement(insert_new(organizations, Organization._fields))
_ADD_MEMBERSHIP: Final = Statement(
    insert(memberships)
    .values(
        **{name: bindparam(name) for name in Membership._fields},
        email=select(users.c.email).where(users.c.id == bindparam("user_id")).scalar_subquery(),
    )
    .on_conflict_do_nothing()
)


def _joined() -> Select[Any]:
    return (
        select(*(_o[name] for name in Organization._fields), *_membership_columns())
        .join(memberships, _m.organization_id == _o.id)
        .where(_m.user_id == bindparam("user_id"))
    )


_FIND: Final = Statement(_joined().where(_o.id == bindparam("organization_id")))
_LIST: Final = Statement(
    page(_joined().where(named(_o.name), _o.id > bindparam("after")).order_by(_o.id))
)
_COUNT: Final = Statement(
    select(func.count())
    .select_from(memberships)
    .join(organizations, _m.organization_id == _o.id)
    .where(_m.user_id == bindparam("user_id"), named(_o.name))
)
_NAMES: Final = Statement(select(_o.id, _o.name).where(_o.id.in_(listed("ids"))))
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


def _members() -> Select[Any]:
    return (
        select(*_membership_columns(), users.c.email, users.c.organization_id)
        .join(users, users.c.id == _m.user_id)
        .where(_OF_ORGANIZATION)
    )


_FIND_MEMBER: Final = Statement(_members().where(_m.user_id == bindparam("user_id")))
_OF_EMAIL: Final = named(_m.email, "email")
_LIST_MEMBERS: Final = Statement(
    page(_members().where(_OF_EMAIL, _m.user_id > bindparam("after")).order_by(_m.user_id))
)
_COUNT_MEMBERS: Final = Statement(
    select(func.count()).select_from(memberships).where(_OF_ORGANIZATION, _OF_EMAIL)
)
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
_UPDATE_MEMBERSHIP: Final = Statement(
    memberships.update()
    .where(
        _m.organization_id == bindparam("held_organization_id"),
        _m.user_id == bindparam("held_user_id"),
    )
    .values(role=bindparam("role"))
)
_DELETE_MEMBERSHIP: Final = Statement(
    memberships.delete().where(_OF_ORGANIZATION, _m.user_id == bindparam("user_id"))
)


def add_organization(tx: Connection, organization: Organization) -> None:
    """Insert an organization; add its first owner's membership in the same transaction."""
    tx.execute(_ADD, **organization._asdict())


def find_joined(tx: Connection, organization_id: str, user_id: str) -> Joined | None:
    """Return an organization with a person's membership, or None if not a member."""
    row = tx.row(_FIND, organization_id=organization_id, user_id=user_id)
    return _join(row) if row else None


def organization_names(tx: Connection, ids: Sequence[str]) -> dict[str, str]:
    """Return the names of organizations by their ids."""
    return {row[0]: row[1] for row in tx.rows(_NAMES, ids=text_list(ids))}


def list_joined(tx: Connection, user_id: str, name: str, after: str, limit: int) -> list[Joined]:
    """Return the organizations a person belongs to, oldest first; of this name, if it has one."""
    rows = tx.rows(_LIST, user_id=user_id, name=name, after=after, limit=limit)
    return [_join(row) for row in rows]


def count_joined(tx: Connection, user_id: str, name: str) -> int:
    """Count the organizations that `list_joined` lists."""
    return count(tx, _COUNT, user_id=user_id, name=name)


def lock_if_there(tx: Connection, organization_id: str) -> bool:
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


def add_membership(tx: Connection, membership: Membership) -> bool:
    """Insert a membership; return False if a person with this e-mail address has one."""
    return tx.execute(_ADD_MEMBERSHIP, **membership._asdict()) == 1


def find_member(tx: Connection, organization_id: str, user_id: str) -> Member | None:
    """Return a person's membership, or None."""
    row = tx.row(_FIND_MEMBER, organization_id=organization_id, user_id=user_id)
    return _member(row) if row else None


def list_members(
    tx: Connection, organization_id: str, email: str, after: str, limit: int
) -> list[Member]:
    """Return the members by id; if `email` (in lower case) is not empty, only that one."""
    of = {"organization_id": organization_id, "email": email}
    return [_member(row) for row in tx.rows(_LIST_MEMBERS, **of, after=after, limit=limit)]


def count_members(tx: Connection, organization_id: str, email: str) -> int:
    """Count the members that `list_members` lists, suspended or not."""
    return count(tx, _COUNT_MEMBERS, organization_id=organization_id, email=email)


def count_other_owners(tx: Connection, organization_id: str, user_id: str) -> int:
    """Count the other owners who can sign in."""
    return count(tx, _COUNT_OTHER_OWNERS, organization_id=organization_id, user_id=user_id)


def count_owned(tx: Connection, user_id: str) -> int:
    """Count the organizations a person owns, without the personal one."""
    return count(tx, _COUNT_OWNED, user_id=user_id)


def update_membership(tx: Connection, membership: Membership) -> None:
    """Update the changeable columns of a membership."""
    tx.execute(
        _UPDATE_MEMBERSHIP,
        held_organization_id=membership.organization_id,
        held_user_id=membership.user_id,
        role=membership.role,
    )


def delete_membership(tx: Connection, organization_id: str, user_id: str) -> None:
    """Delete a membership."""
    tx.execute(_DELETE_MEMBERSHIP, organization_id=organization_id, user_id=user_id)


def _join(row: Row) -> Joined:
    count = len(Organization._fields)
    organization = Organization(*row[:count])
    return Joined(
        organization._replace(is_personal=bool(organization.is_personal)),
        Membership(*row[count:]),
    )


def _member(row: Row) -> Member:
    return Member(Membership(*row[:-2]), row[-2], row[-1])

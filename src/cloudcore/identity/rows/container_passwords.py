"""Queries of the named passwords with which persons log container clients in."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Select, and_, bindparam, func, select

from cloudcore.db.base import Connection
from cloudcore.db.deletion import deletion
from cloudcore.db.rows import count, insert_new
from cloudcore.db.statement import Statement, named, page
from cloudcore.identity.provider_tables import provider_subjects
from cloudcore.identity.rows.assumable_roles import COLUMNS, AssumableRole
from cloudcore.identity.tables import (
    accounts,
    container_passwords,
    role_assignments,
    roles,
    users,
)

_c = container_passwords.c
_r = roles.c
_a = accounts.c
_u = users.c
_g = role_assignments.c


class ContainerPassword(NamedTuple):
    """A row; the password itself is stored nowhere."""

    id: str
    user_id: str
    role_id: str
    name: str
    password_sha256: str
    created_at: int
    expires_at: int
    last_used_at: int | None = None


class Holder(NamedTuple):
    """A container password with its person and the role that is assigned to the person."""

    password: ContainerPassword
    email: str
    user_status: str
    organization_id: str
    """The personal organization."""
    role: AssumableRole


_PERSON: Final = ("email", "status", "organization_id")


def _columns(*conditions: ColumnElement[bool]) -> Select[Any]:
    return (
        select(
            *(_c[name] for name in ContainerPassword._fields),
            *(_u[name] for name in _PERSON),
            *COLUMNS,
        )
        .join(users, _u.id == _c.user_id)
        .join(role_assignments, and_(_g.role_id == _c.role_id, _g.user_id == _c.user_id))
        .join(roles, _r.id == _g.role_id)
        .join(accounts, _a.id == _r.account_id)
        .where(*conditions)
    )


_OF_PERSON: Final = _c.user_id == bindparam("user_id")
_IN_LIST: Final = (_OF_PERSON, named(_c.name))
_ADD: Final = Statement(insert_new(container_passwords, ContainerPassword._fields))
_FIND: Final = Statement(_columns(_c.id == bindparam("id")))
_FIND_OF_PERSON: Final = Statement(_columns(_OF_PERSON, _c.id == bindparam("id")))
_LIST: Final = Statement(page(_columns(*_IN_LIST, _c.name > bindparam("after")).order_by(_c.name)))
_COUNT: Final = Statement(select(func.count()).select_from(container_passwords).where(*_IN_LIST))
_DELETE: Final = Statement(container_passwords.delete().where(_c.id == bindparam("id")))
_DELETE_OF_PERSON: Final = Statement(container_passwords.delete().where(_OF_PERSON))
_DELETE_EXPIRED_OF_PERSON: Final = Statement(
    container_passwords.delete().where(_OF_PERSON, _c.expires_at <= bindparam("now"))
)
_DELETE_OF_PROVIDER: Final = Statement(
    container_passwords.delete().where(
        _c.user_id.in_(
            select(provider_subjects.c.user_id).where(
                provider_subjects.c.provider_id == bindparam("of_provider")
            )
        )
    )
)
_FORGET: Final = deletion(_c.expires_at)


def add_container_password(tx: Connection, password: ContainerPassword) -> bool:
    """Insert a password; return False if the person has one of its name."""
    return tx.execute(_ADD, **password._asdict()) == 1


def find_holder(tx: Connection, password_id: str) -> Holder | None:
    """Return a password with its person and role, in any state, or None."""
    row = tx.row(_FIND, id=password_id)
    return _holder(row) if row else None


def find_container_password(tx: Connection, user_id: str, password_id: str) -> Holder | None:
    """Return a password of a person, or None."""
    row = tx.row(_FIND_OF_PERSON, user_id=user_id, id=password_id)
    return _holder(row) if row else None


def list_container_passwords(
    tx: Connection, user_id: str, name: str, after: str, limit: int
) -> list[Holder]:
    """Return the passwords of a person, by name; if `name` is not empty, only that one."""
    rows = tx.rows(_LIST, user_id=user_id, name=name, after=after, limit=limit)
    return [_holder(row) for row in rows]


def count_container_passwords(tx: Connection, user_id: str, name: str) -> int:
    """Count the passwords that `list_container_passwords` lists."""
    return count(tx, _COUNT, user_id=user_id, name=name)


def remove_container_password(tx: Connection, password_id: str) -> None:
    """Delete a password."""
    tx.execute(_DELETE, id=password_id)


def remove_expired_of_person(tx: Connection, user_id: str, now: int) -> None:
    """Delete a person's passwords that have expired, so that their names are free."""
    tx.execute(_DELETE_EXPIRED_OF_PERSON, user_id=user_id, now=now)


def remove_container_passwords(tx: Connection, user_id: str) -> None:
    """Delete all passwords of a person."""
    tx.execute(_DELETE_OF_PERSON, user_id=user_id)


def remove_container_passwords_of_provider(tx: Connection, provider_id: str) -> None:
    """Delete the passwords of all persons that an identity provider speaks for."""
    tx.execute(_DELETE_OF_PROVIDER, of_provider=provider_id)


def forget_container_passwords(tx: Connection, now: int) -> int:
    """Delete a batch of the expired passwords; return how many."""
    return tx.execute(_FORGET, before=now)


def _holder(row: tuple[Any, ...]) -> Holder:
    own = len(ContainerPassword._fields)
    rest = own + len(_PERSON)
    email, status, organization_id = row[own:rest]
    password, role = ContainerPassword(*row[:own]), AssumableRole(*row[rest:])
    return Holder(password, email, status, organization_id, role)

"""Queries of the named passwords with which persons log container clients in."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sqlalchemy import and_, bindparam, select

from cloudcore.db.base import Connection
from cloudcore.db.rows import deletion, find_one
from cloudcore.db.statement import Statement
from cloudcore.identity.rows.owned import OwnedRows
from cloudcore.identity.rows.roles import COLUMNS, AssumableRole
from cloudcore.identity.tables import (
    accounts,
    container_passwords,
    provider_subjects,
    role_assignments,
    roles,
    users,
)

_c = container_passwords.c
_g = role_assignments.c


class ContainerPassword(NamedTuple):
    """A container password's row, with fields of its person and with its role.

    The password itself is not stored.
    """

    id: str
    user_id: str
    role_id: str
    name: str
    password_sha256: str
    created_at: int
    expires_at: int
    last_used_at: int | None
    email: str
    user_status: str
    organization_id: str
    """Id of the person's personal organization."""
    role: AssumableRole


_PERSON: Final = ("email", "user_status", "organization_id")
_STORED: Final = ContainerPassword._fields[:8]


def _password(*row: Any) -> ContainerPassword:  # noqa: ANN401 - of a database
    own = len(_STORED) + len(_PERSON)
    return ContainerPassword._make((*row[:own], AssumableRole(*row[own:])))


_every = (
    select(
        *(_c[name] for name in _STORED),
        *(users.c.email, users.c.status, users.c.organization_id),
        *COLUMNS,
    )
    .join(users, users.c.id == _c.user_id)
    .join(role_assignments, and_(_g.role_id == _c.role_id, _g.user_id == _c.user_id))
    .join(roles, roles.c.id == _g.role_id)
    .join(accounts, accounts.c.id == roles.c.account_id)
)
CONTAINER_PASSWORDS: Final = OwnedRows(
    container_passwords,
    ContainerPassword,
    "container password",
    owner="user_id",
    computed=(*_PERSON, "role"),
    query=_every,
    read=_password,
)
_OF_PERSON: Final = _c.user_id == bindparam("user_id")
_FIND: Final = Statement(_every.where(_c.id == bindparam("id")))
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
forget_container_passwords: Final = deletion(_c.expires_at)
"""Deletes a batch of the expired passwords."""


def find_container_password(tx: Connection, password_id: str) -> ContainerPassword | None:
    """Return a password, even if it has expired or its person is suspended; None if missing."""
    return find_one(tx, _password, _FIND, id=password_id)


def remove_expired_of_person(tx: Connection, user_id: str, now: int) -> None:
    """Delete a person's expired passwords, so that their names can be used again."""
    tx.execute(_DELETE_EXPIRED_OF_PERSON, user_id=user_id, now=now)


def remove_container_passwords(tx: Connection, user_id: str) -> None:
    """Delete all container passwords of a person."""
    tx.execute(_DELETE_OF_PERSON, user_id=user_id)


def remove_container_passwords_of_provider(tx: Connection, provider_id: str) -> None:
    """Delete the passwords of all persons linked to an identity provider."""
    tx.execute(_DELETE_OF_PROVIDER, of_provider=provider_id)

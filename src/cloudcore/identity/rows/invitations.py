"""Queries of invitations by e-mail address; a person with the address need not exist."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sqlalchemy import Select, bindparam, func, select

from cloudcore.db.base import Connection
from cloudcore.db.deletion import deletion
from cloudcore.db.rows import count
from cloudcore.db.statement import Statement, named, page
from cloudcore.identity.rows.insertion import insertion
from cloudcore.identity.tables import invitations

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


def _columns() -> Select[Any]:
    return select(*(_i[name] for name in Invitation._fields))


_OF_ORGANIZATION: Final = _i.organization_id == bindparam("organization_id")
_OF_ADDRESS: Final = (_OF_ORGANIZATION, _i.email == bindparam("email"))
_IN_LIST: Final = (_OF_ORGANIZATION, named(_i.email, "email"))
_ADD: Final = insertion(invitations)
_FIND: Final = Statement(_columns().where(*_OF_ADDRESS))
_LIST: Final = Statement(
    page(_columns().where(*_IN_LIST, _i.email > bindparam("after")).order_by(_i.email))
)
_COUNT: Final = Statement(select(func.count()).select_from(invitations).where(*_IN_LIST))
_REPLACE: Final = Statement(invitations.delete().where(*_OF_ADDRESS))
_DELETE: Final = Statement(invitations.delete().where(_OF_ORGANIZATION, _i.id == bindparam("id")))
_FORGET: Final = deletion(_i.expires_at)


def put_invitation(tx: Connection, invitation: Invitation) -> None:
    """Insert an invitation, replacing the organization's earlier one for the address."""
    tx.execute(_REPLACE, organization_id=invitation.organization_id, email=invitation.email)
    tx.execute(_ADD, **invitation._asdict())


def find_invitation(tx: Connection, organization_id: str, email: str) -> Invitation | None:
    """Return an organization's invitation for an address, expired or not, or None."""
    row = tx.row(_FIND, organization_id=organization_id, email=email)
    return Invitation(*row) if row else None


def list_invitations(
    tx: Connection, organization_id: str, email: str, after: str, limit: int
) -> list[Invitation]:
    """Return the invitations of an organization, by address; if `email` is not empty, that one."""
    of = {"organization_id": organization_id, "email": email}
    return [Invitation(*row) for row in tx.rows(_LIST, **of, after=after, limit=limit)]


def count_invitations(tx: Connection, organization_id: str, email: str) -> int:
    """Count the invitations that `list_invitations` lists."""
    return count(tx, _COUNT, organization_id=organization_id, email=email)


def delete_invitation(tx: Connection, organization_id: str, invitation_id: str) -> bool:
    """Delete an invitation; return False if there is none."""
    return tx.execute(_DELETE, organization_id=organization_id, id=invitation_id) == 1


def forget_invitations(tx: Connection, now: int) -> int:
    """Delete a batch of the expired invitations; return how many."""
    return tx.execute(_FORGET, before=now)

"""Queries of invitations by e-mail address; a person with the address need not exist."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import bindparam

from cloudcore.db.base import Connection
from cloudcore.db.deletion import deletion
from cloudcore.db.statement import Statement
from cloudcore.identity.rows.owned import OwnedRows
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


INVITATIONS: Final = OwnedRows(
    invitations, Invitation, "invitation", (), owner="organization_id", label="email"
)
_REPLACE: Final = Statement(
    invitations.delete().where(
        _i.organization_id == bindparam("organization_id"), _i.email == bindparam("email")
    )
)
_FORGET: Final = deletion(_i.expires_at)


def put_invitation(tx: Connection, invitation: Invitation) -> None:
    """Insert an invitation, replacing the organization's earlier one for the address."""
    tx.execute(_REPLACE, organization_id=invitation.organization_id, email=invitation.email)
    INVITATIONS.add(tx, invitation)


def forget_invitations(tx: Connection, now: int) -> int:
    """Delete a batch of the expired invitations; return how many."""
    return tx.execute(_FORGET, before=now)

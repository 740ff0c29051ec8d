"""Queries of the sealed secrets of key pairs, by public id."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import bindparam, select

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.identity.tables import access_keys, sessions


class SealedSession(NamedTuple):
    """The signing credential of a role session, which may have ended."""

    sid: str
    secret_sealed: bytes


_OF_KEY: Final = Statement(
    select(access_keys.c.secret_sealed).where(
        access_keys.c.access_key_id == bindparam("access_key_id")
    )
)
_OF_SESSION: Final = Statement(
    select(sessions.c.id, sessions.c.secret_sealed).where(
        sessions.c.access_key_id == bindparam("access_key_id")
    )
)


def find_sealed_secret(tx: Connection, access_key_id: str) -> bytes | None:
    """Return the sealed secret of an access key, or None."""
    row = tx.row(_OF_KEY, access_key_id=access_key_id)
    return None if row is None else bytes(row[0])


def find_sealed_session(tx: Connection, access_key_id: str) -> SealedSession | None:
    """Return the role session with this signing credential, or None."""
    row = tx.row(_OF_SESSION, access_key_id=access_key_id)
    return None if row is None or row[1] is None else SealedSession(row[0], bytes(row[1]))

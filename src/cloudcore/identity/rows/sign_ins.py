"""Queries of authorization codes and refresh tokens."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import bindparam, null, select

from cloudcore.db.base import Connection
from cloudcore.db.deletion import deletion
from cloudcore.db.rows import insert_new
from cloudcore.db.statement import Statement
from cloudcore.identity.tables import auth_codes, refresh_tokens

_c = auth_codes.c
_r = refresh_tokens.c


class Code(NamedTuple):
    """An authorization code; only its hash is stored."""

    code_sha256: str
    user_id: str
    client_id: str
    redirect_uri: str
    code_challenge: str
    sid: str | None
    """The session its first use started; None before that and after a second use."""
    created_at: int
    expires_at: int
    spent_at: int | None
    identity_provider_id: str | None = None
    """Where the person signed in, or None if here, by password."""


class RefreshToken(NamedTuple):
    """A refresh token; only its hash is stored."""

    token_sha256: str
    sid: str
    client_id: str | None
    """The client it is bound to; None for tokens from before there were several clients."""
    created_at: int
    expires_at: int
    spent_at: int | None


_ADD_CODE: Final = Statement(insert_new(auth_codes, Code._fields))
_THE_CODE: Final = _c.code_sha256 == bindparam("hash")
_LOCK_CODE: Final = Statement(
    select(*(_c[name] for name in Code._fields)).where(_THE_CODE).with_for_update()
)
_SPEND_CODE: Final = Statement(
    auth_codes.update()
    .where(_THE_CODE, _c.spent_at.is_(None))
    .values(spent_at=bindparam("now"), sid=bindparam("for_sid"))
)
_DISOWN: Final = Statement(auth_codes.update().where(_THE_CODE).values(sid=null()))
_FORGET_CODES: Final = deletion(_c.expires_at)

_ADD_REFRESH: Final = Statement(insert_new(refresh_tokens, RefreshToken._fields))
_THE_REFRESH: Final = _r.token_sha256 == bindparam("hash")
_LOCK_REFRESH: Final = Statement(
    select(*(_r[name] for name in RefreshToken._fields)).where(_THE_REFRESH).with_for_update()
)
_SPEND_REFRESH: Final = Statement(
    refresh_tokens.update().where(_THE_REFRESH).values(spent_at=bindparam("now"))
)
_FORGET_REFRESH: Final = deletion(_r.expires_at)


def add_code(tx: Connection, code: Code) -> None:
    """Insert a code."""
    tx.execute(_ADD_CODE, **code._asdict())


def lock_code(tx: Connection, code_sha256: str) -> Code | None:
    """Return a code, locked until the transaction ends, or None."""
    row = tx.row(_LOCK_CODE, hash=code_sha256)
    return Code(*row) if row else None


def spend_code(tx: Connection, code_sha256: str, sid: str, now: int) -> bool:
    """Use up a code for the session `sid`; return False if it was used before."""
    return tx.execute(_SPEND_CODE, hash=code_sha256, for_sid=sid, now=now) == 1


def disown_code(tx: Connection, code_sha256: str) -> None:
    """Detach a used code from its session, so that the first use cannot start it any more."""
    tx.execute(_DISOWN, hash=code_sha256)


def add_refresh_token(tx: Connection, token: RefreshToken) -> None:
    """Insert a refresh token."""
    tx.execute(_ADD_REFRESH, **token._asdict())


def lock_refresh_token(tx: Connection, token_sha256: str) -> RefreshToken | None:
    """Return a refresh token, locked until the transaction ends, or None."""
    row = tx.row(_LOCK_REFRESH, hash=token_sha256)
    return RefreshToken(*row) if row else None


def spend_refresh_token(tx: Connection, token_sha256: str, now: int) -> None:
    """Mark a refresh token as used."""
    tx.execute(_SPEND_REFRESH, hash=token_sha256, now=now)


def forget_sign_ins(tx: Connection, before: int) -> int:
    """Delete a batch of the codes and refresh tokens that expired by `before`; return how many."""
    return tx.execute(_FORGET_CODES, before=before) + tx.execute(_FORGET_REFRESH, before=before)

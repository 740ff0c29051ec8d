"""Login credentials of container clients; each ends with the access key or session behind it."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, bindparam, or_, select, text

from cloudcore.db.base import Connection
from cloudcore.db.rows import bound, deletion, given
from cloudcore.db.statement import Statement
from cloudcore.iam.principal import SourceIdentity, read_source
from cloudcore.identity.rows.sessions import find_session_of_login
from cloudcore.identity.tables import access_keys, accounts, login_credentials, service_accounts
from cloudcore.quotas.limits import Counted, count_up_to_limit
from registry.quotas import LOGINS

_l = login_credentials.c
_ACTIVE: Final = text("'active'")


class NewLogin(NamedTuple):
    """A login credential to store. It depends on an access key or a session."""

    id: str
    password_sha256: str
    account_id: str
    service_account_id: str | None
    access_key_id: str | None
    sid: str | None
    expires_at: int


class Login(NamedTuple):
    """A valid login credential and its principal."""

    id: str
    account_id: str
    handle: str
    expires_at: int
    service_account_id: str | None
    service_account: str | None
    """Name of the service account."""
    sid: str | None
    access_key_id: str | None = None
    """Row id of the service account's access key that the login was made with."""
    role_id: str | None = None
    """Id of the session's role, if there is one."""
    role: str | None = None
    """Name of that role."""
    direct_key_id: str | None = None
    """The public id of the access key that is the credential itself."""
    source: SourceIdentity | None = None
    """The person or program that has assumed the role."""
    is_container_password: bool = False
    """True if it is a named password of a person, which has no session."""


_ADD: Final = Statement(
    login_credentials.insert().values(
        **bound(
            ("id", "password_sha256", "account_id", "service_account_id", "access_key_id", "sid")
        ),
        created_at=bindparam("now"),
        expires_at=bindparam("expires_at"),
    )
)


def _found_by(key: ColumnElement[bool]) -> Statement:
    """Build the query for a valid login whose account, principal and access key are valid too."""
    return Statement(
        select(
            _l.id,
            _l.account_id,
            accounts.c.handle,
            _l.expires_at,
            _l.service_account_id,
            service_accounts.c.name,
            _l.sid,
            access_keys.c.id,
            access_keys.c.expires_at,
        )
        .join(accounts, accounts.c.id == _l.account_id)
        .outerjoin(service_accounts, service_accounts.c.id == _l.service_account_id)
        .outerjoin(access_keys, access_keys.c.id == _l.access_key_id)
        .where(
            key,
            _l.revoked_at.is_(None),
            _l.expires_at > bindparam("now"),
            accounts.c.status == _ACTIVE,
            or_(_l.service_account_id.is_(None), service_accounts.c.status == _ACTIVE),
            or_(_l.access_key_id.is_(None), access_keys.c.status == _ACTIVE),
            or_(access_keys.c.expires_at.is_(None), access_keys.c.expires_at > bindparam("now")),
        )
    )


_OPEN: Final = count_up_to_limit(
    LOGINS,
    select(_l.expires_at).where(
        given(_l.account_id), _l.revoked_at.is_(None), _l.expires_at > bindparam("now")
    ),
)
OPEN: Final = Counted(LOGINS, _OPEN)
"""Counts the logins of ``:account_id`` that are open at ``:now``."""
forget_expired: Final = deletion(_l.expires_at)
"""Delete expired logins."""
_FIND_BY_PASSWORD: Final = _found_by(_l.password_sha256 == bindparam("key"))
_FIND_BY_ID: Final = _found_by(_l.id == bindparam("key"))


def add_login(tx: Connection, login: NewLogin, now: int) -> None:
    """Insert a login credential."""
    tx.execute(_ADD, **login._asdict(), now=now)


def find_login(tx: Connection, password_sha256: str, now: int) -> Login | None:
    """Return the valid login with this password hash, or None."""
    return _login(tx, _FIND_BY_PASSWORD, password_sha256, now)


def find_login_by_id(tx: Connection, login_id: str, now: int) -> Login | None:
    """Return the valid login with this id, or None."""
    return _login(tx, _FIND_BY_ID, login_id, now)


def _login(tx: Connection, statement: Statement, key: str, now: int) -> Login | None:
    row = tx.row(statement, key=key, now=now)
    if row is None:
        return None
    login, key_expires_at = Login(*row[:-1]), row[-1]
    if key_expires_at is not None:
        login = login._replace(expires_at=min(login.expires_at, key_expires_at))
    if login.sid is None:
        return login
    session = find_session_of_login(tx, login.sid, now)
    if session is None or session.role_id is None:
        return None
    source = read_source(session.first_source)
    return login._replace(role_id=session.role_id, role=session.role, source=source)

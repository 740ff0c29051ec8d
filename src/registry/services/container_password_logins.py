"""Log container clients in with the named passwords that persons make for them.

What the password stands for is read at every exchange: the person, the assignment of the role, its
trust policy, its account, and that the role may log container clients in. A malformed or unknown
password, a wrong one, and one that its role does not admit any more take the same work and give the
same error.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from hashlib import sha256
from ipaddress import IPv4Address, IPv6Address
from typing import Final, NamedTuple

from cloudcore.clock import Clock
from cloudcore.db.base import Connection, Database
from cloudcore.identity.rows.container_passwords import ContainerPassword, find_container_password
from cloudcore.identity.services.container_passwords import (
    find_admitted,
    id_of,
    is_admitted,
    principal_of,
)
from cloudcore.serving.source_address import rate_subject
from registry.metadata.logins import Login
from registry.services.login_attempts import (
    RefusedLogin,
    count_failure,
    seconds_refused,
    too_many_failures,
    wrong_login,
)

_DUMMY: Final = sha256(b"").hexdigest()
_NOBODY: Final = "00000000-0000-0000-0000-000000000000"


class _Found(NamedTuple):
    """What is stored of a container password that a client sends."""

    password: ContainerPassword | None
    is_admitted: bool
    retry_after: int
    """Seconds until the client may try this password again; 0: now."""


async def log_in_with_password(
    database: Database,
    clock: Clock,
    password: str,
    source_ip: IPv4Address | IPv6Address | None,
    note_refusal: Callable[[RefusedLogin], None],
) -> Login:
    """Return a container password as a login. A failure takes a second transaction.

    `note_refusal` is called for a password that exists and is refused.

    Raises:
        Unauthenticated: it is unknown or wrong, has expired, or its role does not admit the person.
        RateLimited: too many failures.

    """
    source, now = rate_subject(source_ip), clock()
    password_id = id_of(password) or _NOBODY
    found = await database.read(_find, password_id, source, source_ip, now)
    if found.retry_after:
        raise too_many_failures(found.retry_after)
    stored = found.password
    kept = _DUMMY if stored is None else stored.password_sha256
    given = sha256(password.encode("utf-8", "surrogateescape")).hexdigest()
    if hmac.compare_digest(given, kept) and stored is not None and found.is_admitted:
        return _login(stored)
    if stored is not None:
        note_refusal(_refused(stored))
    retry_after = await database.write_relaxed(count_failure, password_id, source, now)
    raise too_many_failures(retry_after) if retry_after else wrong_login()


def find_password_login(
    tx: Connection, password_id: str, source_ip: IPv4Address | IPv6Address | None, now: int
) -> Login | None:
    """Return a container password as a login, or None if it is not in force (any more)."""
    found = find_admitted(tx, password_id, source_ip, now)
    return None if found is None else _login(found)


def _find(
    tx: Connection,
    password_id: str,
    source: str,
    source_ip: IPv4Address | IPv6Address | None,
    now: int,
) -> _Found:
    retry_after = seconds_refused(tx, password_id, source, now)
    password = find_container_password(tx, password_id)
    admitted = password is not None and is_admitted(tx, password, source_ip, now)
    return _Found(password, admitted, retry_after)


def _login(password: ContainerPassword) -> Login:
    role = password.role
    return Login(
        id=password.id,
        account_id=role.account_id,
        handle=role.handle,
        expires_at=password.expires_at,
        service_account_id=None,
        service_account=None,
        sid=None,
        role_id=role.id,
        role=role.name,
        source=principal_of(password).source,
        is_container_password=True,
    )


def _refused(password: ContainerPassword) -> RefusedLogin:
    role = principal_of(password)
    assert role.source is not None
    return RefusedLogin(password.role.account_id, role.source.crn, role.source, (role.crn,))

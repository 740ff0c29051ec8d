"""Log container clients in with the named passwords that persons create for them.

Every exchange reads everything that the password depends on: the person; the assignment, trust
policy and account of the role; and the role's right to log container clients in. A malformed,
unknown, wrong or no longer admitted password takes the same work and gives the same error.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

from cloudcore.db.base import Connection
from cloudcore.identity.rows.container_passwords import ContainerPassword, find_container_password
from cloudcore.identity.services.container_passwords import id_of, is_admitted, principal_of
from registry.metadata.logins import Login
from registry.services.access.logins import UNUSED_ID, RefusedLogin, StoredLogin


def password_id(password: str) -> str:
    """Return the id inside a container password; for a malformed one, an id that nobody has."""
    return id_of(password) or UNUSED_ID


def find_password(
    tx: Connection, password_id: str, source_ip: IPv4Address | IPv6Address | None, now: int
) -> StoredLogin | None:
    """Return the stored container password with this id, or None."""
    password = find_container_password(tx, password_id)
    if password is None:
        return None
    login = _login(password) if is_admitted(tx, password, source_ip, now) else None
    role = principal_of(password)
    assert role.source is not None
    refused = RefusedLogin(password.role.account_id, role.source.crn, role.source, (role.crn,))
    return StoredLogin(password.password_sha256, login, refused)


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

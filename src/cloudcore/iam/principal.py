"""The principal of a request, from a verified token and current rows."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import msgspec


class PrincipalKind(Enum):
    """The kind of a principal."""

    USER = "user"
    SERVICE_ACCOUNT = "service_account"
    ROLE_SESSION = "role_session"


class Source(NamedTuple):
    """The person or program behind a principal: itself, or the first of a chain of roles."""

    crn: str
    name: str
    """E-mail address of a person, name of a service account."""
    session_name: str | None = None
    """Name of the role session; None without a role."""

    def stored(self) -> str:
        """Return the JSON text that a column holds."""
        return msgspec.json.encode(self).decode()


def stored_source(source: Source | None) -> str | None:
    """Return the JSON text that a column holds; null without a source."""
    return None if source is None else source.stored()


def read_source(text: str | None) -> Source | None:
    """Return the source that a column holds; or None if it holds none."""
    return None if text is None else msgspec.json.decode(text, type=Source)


class Principal(NamedTuple):
    """A signed-in caller. For a role session, `id` and `crn` are those of the role."""

    kind: PrincipalKind
    id: str
    crn: str
    account_id: str | None
    """None for a person who has not assumed a role in an account."""
    organization_id: str | None
    """A person's personal organization; None for other kinds."""
    sid: str | None
    """The token's session; revoking it revokes the token."""
    jti: str
    """The token's id (`jti`)."""
    expires_at: int
    """Microseconds since the epoch."""
    access_key_id: str | None = None
    """For a service account, the id of the access key its token was issued for."""
    container_password_id: str | None = None
    """For a role, the id of the container password that stands for a person in it."""
    source: Source | None = None
    """Who is behind a role session, the caller itself otherwise."""

"""The principal of a request, from a verified token and current rows."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class PrincipalKind(Enum):
    """The kind of a principal."""

    USER = "user"
    SERVICE_ACCOUNT = "service_account"
    ROLE_SESSION = "role_session"


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

"""Who is asking: what a verified token says, looked up and found to be still so."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class PrincipalKind(Enum):
    """What kind of caller a token stands for."""

    USER = "user"
    SERVICE_ACCOUNT = "service_account"
    ROLE_SESSION = "role_session"


class Principal(NamedTuple):
    """A signed-in caller. Of a role session, `id` and `crn` are the role's."""

    kind: PrincipalKind
    id: str
    crn: str
    account_id: str | None
    """None for a person who has not assumed a role in an account."""
    organization_id: str | None
    """A person's personal organization; None for the others."""
    sid: str | None
    """The session the token belongs to; ending it ends the token."""
    jti: str
    """The identity of the token itself; never its string."""
    expires_at: int
    """Microseconds since the epoch."""
    access_key_id: str | None = None
    """Of a service account, the row of the key its token was issued for."""

"""The quotas of identity."""

from __future__ import annotations

from typing import Final

from cloudcore.quotas.quota import Quota

ACCOUNTS: Final = Quota("accounts", 100, "accounts", per="organization")
OWNED: Final = Quota(
    "organizations", 10, "organizations that a person owns, without the personal one", per="person"
)
ROLE_SESSIONS: Final = Quota("role_sessions", 5_000, "open sessions of roles")

QUOTAS: Final = (ACCOUNTS, OWNED, ROLE_SESSIONS)

"""Bound how often long-lived credentials of container clients are tried at ``/v2/token``.

Failures count against two budgets, as those of sign-ins do. If that of a credential from an address
is exhausted, the credential is refused there, whatever the secret. That of the address only turns
further failures into 429, so that one machine with an old secret does not stop the others behind
the same proxy. It is counted first: an address cannot fill the table of budgets with ids it makes
up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.errors import TooManyAttempts, Unauthenticated
from cloudcore.iam.principal import Source
from cloudcore.web.ratelimit import Budget, count_request, seconds_exhausted

ADDRESS_BUDGET: Final = Budget(limit=30, window_seconds=300, is_extended=False)
"""Failures per client address (IPv6: /64), over all credentials."""
CREDENTIAL_BUDGET: Final = Budget(limit=10, window_seconds=300, is_extended=False)
"""Failures per client address and credential."""

NAMED_LOGIN: Final = "ecp_"
"""What passwords begin with that persons make for container clients."""
_ENDPOINT: Final = "access-key-login"


class RefusedLogin(NamedTuple):
    """A login that exists and was refused, for the audit log."""

    account_id: str
    principal: str
    """CRN of the service account or role."""
    source: Source
    resources: Sequence[str]
    """CRNs."""


def seconds_refused(tx: Connection, credential_id: str, source: str, now: int) -> int:
    """Return the seconds until a credential may be tried from an address again; 0: now."""
    return seconds_exhausted(tx, _ENDPOINT, _subject(credential_id, source), CREDENTIAL_BUDGET, now)


def count_failure(tx: Connection, credential_id: str, source: str, now: int) -> int:
    """Count a failure; return the seconds until the client may try again, 0 if it may now."""
    subjects = (
        (f"address {source}", ADDRESS_BUDGET),
        (_subject(credential_id, source), CREDENTIAL_BUDGET),
    )
    for subject, budget in subjects:
        status = count_request(tx, _ENDPOINT, subject, budget, now)
        if status.is_refused:
            return status.reset
    return 0


def wrong_login() -> Unauthenticated:
    """Return the error for every invalid login, the same for all causes."""
    return Unauthenticated("the user name or password is wrong, or has expired")


def too_many_failures(retry_after: int) -> TooManyAttempts:
    """Return the error for a credential or an address that has failed too often."""
    return TooManyAttempts("too many failed logins", retry_after=retry_after)


def _subject(credential_id: str, source: str) -> str:
    return f"{credential_id} {source}"

"""How often endpoints are asked to confirm: they may be of strangers, who never asked for it."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from cloudcore.db.base import Connection
from cloudcore.errors import TooManyConfirmations
from cloudcore.notifications.subscription import Subscription
from cloudcore.web.ratelimit import Budget, count_request

_HOUR: Final = 3600
OF_ENDPOINT: Final = Budget(limit=10, window_seconds=_HOUR, is_extended=False)
"""Requests to a mailbox or a URL, of all accounts together."""
OF_ACCOUNT: Final = Budget(limit=300, window_seconds=_HOUR, is_extended=False)
"""Requests of an account to all endpoints."""


def count_ask(tx: Connection, subscription: Subscription, now: int) -> None:
    """Count a request to confirm a subscription.

    Raises:
        TooManyConfirmations: its endpoint, or others of its account, were asked too often.

    """
    subjects = (
        ("notifications endpoint", _endpoint(subscription), OF_ENDPOINT),
        ("notifications account", subscription.account_id, OF_ACCOUNT),
    )
    for name, subject, budget in subjects:
        status = count_request(tx, name, subject, budget, now)
        if status.is_refused:
            raise TooManyConfirmations(
                f"too many requests to confirm: at most {OF_ENDPOINT.limit} an hour to an endpoint,"
                f" and {OF_ACCOUNT.limit} of an account",
                retry_after=status.reset,
            )


def _endpoint(subscription: Subscription) -> str:
    """Return a digest of what forms of one endpoint have in common."""
    if subscription.protocol == "email":
        local, _, domain = subscription.endpoint.rpartition("@")
        common = f"{local.partition('+')[0]}@{domain}".lower()
    else:
        common = subscription.endpoint.partition("?")[0]
    return sha256(common.encode()).hexdigest()

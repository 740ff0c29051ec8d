"""The description of a quota by its family. It is cheap to import."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Unit = Literal["count", "bytes"]

NEARLY_REACHED: Final = "quotas.quota.nearly_reached"
"""Type of the event that an account has reached four fifths of a limit."""
REACHED: Final = "quotas.quota.reached"
"""Type of the event that an account has reached a limit."""


class Quota(NamedTuple):
    """A limit that an operator can set, for the install and for an account."""

    name: str
    """The name in errors (``params.quota``)."""
    default: int
    """The limit where no operator has set one."""
    words: str
    """The plural noun of what is counted, for messages: ``queues``."""
    unit: Unit = "count"
    per: str = "account"
    """The noun of what has the limit, for messages: ``account``, or a resource such as ``queue``.
    An ``organization`` and a ``person`` belong to no account, so the install's limit applies to
    them."""

    @property
    def has_limits_of_accounts(self) -> bool:
        """Return True if each account has its own limit, which an operator can set."""
        return self.per not in ("organization", "person")

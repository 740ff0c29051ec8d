"""The description of a quota by its family. It is cheap to import."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Unit = Literal["count", "bytes"]

NEARLY_REACHED: Final = "quotas.quota.nearly_reached"
"""Type of the event that an account has four fifths of what it may have."""
REACHED: Final = "quotas.quota.reached"
"""Type of the event that it has all of it."""


class Quota(NamedTuple):
    """A limit that an operator can set, for the install and for an account."""

    name: str
    """As in errors (``params.quota``)."""
    default: int
    """The limit where no operator has set one."""
    words: str
    """What is counted, in sentences: ``queues``."""
    unit: Unit = "count"
    per: str = "account"
    """What has the limit, in sentences: ``account``, or one of its things, such as ``queue``. An
    ``organization`` and a ``person`` are in no account, so they have the limit of the install."""

    @property
    def has_limits_of_accounts(self) -> bool:
        """Return True if each account has its own limit, which an operator can set."""
        return self.per not in ("organization", "person")

"""The quotas of an install, with what an account has and may have of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.ports import Opening, Port
from cloudcore.quotas.limits import Counted, Limits, set_limits
from cloudcore.quotas.quota import Quota


class Known(NamedTuple):
    """A quota, and what counts how much of it an account has."""

    quota: Quota
    counted: Counted | None
    """None if an account has no single number of it."""


QUOTAS: Final[Port[Sequence[Known]]] = Port("platform.quotas")
QUOTA_DEFAULTS: Final[Port[Mapping[str, int]]] = Port("platform.quota_defaults")
"""Defaults of the install's settings, by name, where they are not those of the quotas."""


class Allowance(NamedTuple):
    """What an account has and may have of something."""

    quota: Quota
    limit: int
    default: int
    """The limit without one that was set for the account."""
    used: int | None


@dataclass(frozen=True, slots=True)
class QuotaNeeds:
    """All quotas that can be set for accounts, by name."""

    known: Mapping[str, Known]
    defaults: Mapping[str, int]

    def names(self, after: str, limit: int) -> Sequence[str]:
        """Return the names after one, sorted."""
        return [each for each in sorted(self.known) if each > after][:limit]

    def read(
        self, tx: Connection, names: Sequence[str], account_id: str, region: str, now: int
    ) -> list[Allowance]:
        """Return what an account has and may have of each; one query counts one of them."""
        found = set_limits(tx, account_id)
        return [
            self._allowance(
                tx, self.known[name], found.get(name, Limits()), account_id, region, now
            )
            for name in names
        ]

    def _allowance(
        self, tx: Connection, known: Known, set_: Limits, account_id: str, region: str, now: int
    ) -> Allowance:
        quota, counted = known
        default = self.defaults.get(quota.name, quota.default)
        used = None
        if counted is not None:
            used = counted.read(tx, account_id, region=region, now=now).used
        return Allowance(quota, set_.limit(default), set_._replace(own=None).limit(default), used)


async def open_needs(opening: Opening) -> QuotaNeeds:
    """Return the quotas of the families of this install."""
    known = {
        each.quota.name: each for each in await opening.get(QUOTAS) if each.quota.is_of_account
    }
    return QuotaNeeds(known, await opening.get(QUOTA_DEFAULTS))

"""The quotas of an install, and the use and limits of accounts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.ports import Opening, Port
from cloudcore.quotas.limits import (
    Counted,
    OperatorLimits,
    operator_limits,
    put_limit,
    remove_limit,
)
from cloudcore.quotas.quota import Quota


class KnownQuota(NamedTuple):
    """A quota, and the query that counts what an account has of it."""

    quota: Quota
    counted: Counted | None
    """None if an account has no single number of it."""


QUOTAS: Final[Port[Sequence[KnownQuota]]] = Port("platform.quotas")
QUOTA_DEFAULTS: Final[Port[Mapping[str, int]]] = Port("platform.quota_defaults")
"""Defaults of the install's settings, by name, where they are not those of the quotas."""
OPERATORS: Final[Port[frozenset[str]]] = Port("platform.operators")
"""Handles of the accounts that act for the install."""


class Allowance(NamedTuple):
    """What ``/v1/quotas`` shows of one quota of an account."""

    quota: Quota
    limit: int
    default: int
    """The limit without one that was set for the account."""
    used: int | None


@dataclass(frozen=True, slots=True)
class QuotaNeeds:
    """All quotas, by name."""

    known: Mapping[str, KnownQuota]
    defaults: Mapping[str, int] = field(default_factory=dict)
    operators: frozenset[str] = frozenset()
    """Handles of the accounts that may set limits of others."""

    def names(self, after: str, limit: int) -> Sequence[str]:
        """Return up to `limit` names of `account_quotas` that sort after a name."""
        return [each for each in self.account_quotas if each > after][:limit]

    @property
    def account_quotas(self) -> Sequence[str]:
        """Return the names of the quotas of which each account has a limit, sorted."""
        return sorted(
            name for name, each in self.known.items() if each.quota.has_limits_of_accounts
        )

    def read(
        self, tx: Connection, names: Sequence[str], account_id: str, region: str, now: int
    ) -> list[Allowance]:
        """Return the allowances of an account; one query counts each."""
        found = operator_limits(tx, account_id)
        return [
            self._allowance(
                tx, self.known[name], found.get(name, OperatorLimits()), account_id, region, now
            )
            for name in names
        ]

    def change(
        self,
        tx: Connection,
        account_id: str,
        name: str,
        limit: int | None,
        region: str,
        now: int,
    ) -> bool:
        """Set a limit of an account, or of `EVERY_ACCOUNT`; None removes the one that was set.

        Return False if there was none to remove. An account gets an event if its use has reached a
        level of its new limit. Call it last in a change.
        """
        if limit is None:
            return remove_limit(tx, account_id, name)
        put_limit(tx, account_id, name, limit, now)
        counted = self.known[name].counted
        if account_id and counted is not None:
            use = counted.read(tx, account_id, region=region, now=now)
            counted.tell(tx, account_id, use, now, added=0)
        return True

    def _allowance(
        self,
        tx: Connection,
        known: KnownQuota,
        set_limits: OperatorLimits,
        account_id: str,
        region: str,
        now: int,
    ) -> Allowance:
        quota, counted = known
        default = self.defaults.get(quota.name, quota.default)
        used = None
        if counted is not None:
            used = counted.read(tx, account_id, region=region, now=now).used
        without_own = set_limits._replace(own=None)
        return Allowance(quota, set_limits.limit(default), without_own.limit(default), used)


async def open_needs(opening: Opening) -> QuotaNeeds:
    """Return the quotas of the families of this install."""
    known = {each.quota.name: each for each in await opening.get(QUOTAS)}
    return QuotaNeeds(known, await opening.get(QUOTA_DEFAULTS), await opening.get(OPERATORS))

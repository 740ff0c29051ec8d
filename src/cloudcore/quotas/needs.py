"""The quotas of an install, and the use and limits of accounts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.ports import Opening, Port
from cloudcore.quotas.limits import (
    Counted,
    put_limit,
    remove_limit,
)
from cloudcore.quotas.quota import Quota


class KnownQuota(NamedTuple):
    """A quota, and the query that counts an account's use."""

    quota: Quota
    counted: Counted | None
    """None if the use is not one number for an account."""


QUOTAS: Final[Port[Sequence[KnownQuota]]] = Port("platform.quotas")
QUOTA_DEFAULTS: Final[Port[Mapping[str, int]]] = Port("platform.quota_defaults")
"""Maps quota names to default limits from the install's settings, which replace `Quota.default`."""
OPERATORS: Final[Port[frozenset[str]]] = Port("platform.operators")
"""Handles of the accounts whose principals may act as operators of the install."""


@dataclass(frozen=True, slots=True)
class QuotaNeeds:
    """All quotas by name, the install's default limits, and the operators who may set limits."""

    known: Mapping[str, KnownQuota]
    defaults: Mapping[str, int] = field(default_factory=dict)
    operators: frozenset[str] = frozenset()
    """Handles of the accounts that may set limits of others."""

    def change(
        self,
        tx: Connection,
        account_id: str,
        name: str,
        limit: int | None,
        region: str,
        now: int,
    ) -> bool:
        """Set a limit for an account or for `EVERY_ACCOUNT`, or remove it if `limit` is None.

        Return False if there was no limit to remove. An account gets an event if its use has
        reached a level of its new limit. Call it last in a transaction.
        """
        if limit is None:
            return remove_limit(tx, account_id, name)
        put_limit(tx, account_id, name, limit, now)
        counted = self.known[name].counted
        if account_id and counted is not None:
            use = counted.read(tx, account_id, region=region, now=now)
            counted.emit_level(tx, account_id, use, now, added=0)
        return True


async def open_needs(opening: Opening) -> QuotaNeeds:
    """Return the quotas of the families of this install."""
    known = {each.quota.name: each for each in await opening.get(QUOTAS)}
    return QuotaNeeds(known, await opening.get(QUOTA_DEFAULTS), await opening.get(OPERATORS))

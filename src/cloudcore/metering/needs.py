"""The dependencies of metering, and the meter, which counts frequent use in memory.

The process writes these counts every few seconds. If it is killed, the counts since the last write
are not billed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cloudcore.clock import Clock
from cloudcore.db.base import Database
from cloudcore.metering.sampling import SAMPLES, Measure
from cloudcore.metering.sku import REQUESTS, REQUESTS_OF_API, SKUS, Sku
from cloudcore.metering.usage import HOUR, SkuUse
from cloudcore.ports import Opening, Port
from cloudcore.web.organization_scope import MEMBERSHIP_POLICY, MembershipPolicy


class Meter:
    """Counts use in this process since the last write."""

    def __init__(self, clock: Clock, region: str) -> None:
        """Count for accounts in `region`."""
        self._clock = clock
        self.region = region
        self._counts: Counter[tuple[str, str, int]] = Counter()

    def count(self, account_id: str, sku: str, quantity: int = 1) -> None:
        """Add `quantity`, in the SKU's smallest unit, to an account's use in the current hour."""
        self._counts[account_id, sku, self._clock() // HOUR] += quantity

    def take(self) -> Mapping[SkuUse, int]:
        """Return the counts, and reset them to zero."""
        taken, self._counts = self._counts, Counter()
        return {
            SkuUse(account_id, self.region, sku, hour): quantity
            for (account_id, sku, hour), quantity in taken.items()
        }

    def put_back(self, taken: Mapping[SkuUse, int]) -> None:
        """Add back counts that could not be written."""
        for use, quantity in taken.items():
            self._counts[use.account_id, use.sku, use.hour] += quantity


def requests_counter(meter: Meter, skus: Sequence[Sku]) -> Callable[[str, str], None]:
    """Return a function of (account id, family) that counts a request to the family.

    The request counts under the family's SKU for requests or, without one, as a request of the API.
    """
    own = {sku.service: sku.name for sku in skus if sku.name == f"{sku.service}.{REQUESTS}"}

    def count(account_id: str, family: str) -> None:
        meter.count(account_id, own.get(family, REQUESTS_OF_API.name))

    return count


METER: Final[Port[Meter]] = Port("metering.meter")
"""The meter of this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeteringNeeds:
    """The dependencies of the routes and the chore of metering."""

    database: Database
    clock: Clock
    region: str
    skus: Mapping[str, Sku]
    """All SKUs of the install's families, by name."""
    samples: Mapping[str, Measure]
    membership_policy: MembershipPolicy


async def open_needs(opening: Opening) -> MeteringNeeds:
    """Return what the metering family needs in this process."""
    return MeteringNeeds(
        database=opening.install.database,
        clock=opening.install.clock,
        region=opening.install.region,
        skus={each.name: each for each in await opening.get(SKUS)},
        samples=await opening.get(SAMPLES),
        membership_policy=await opening.get(MEMBERSHIP_POLICY),
    )

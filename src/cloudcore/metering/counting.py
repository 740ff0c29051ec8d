"""Count use in memory, where a transaction for each would cost more than what is used.

The process writes its counts every few seconds. If it is killed, what it has counted since is not
billed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from cloudcore.clock import Clock
from cloudcore.metering.reporting import HOUR, Use
from cloudcore.metering.sku import REQUESTS, REQUESTS_OF_API, Sku
from cloudcore.ports import Port


class Meter:
    """What was used in this process since it was last written."""

    def __init__(self, clock: Clock, region: str) -> None:
        """Count for accounts in `region`."""
        self._clock = clock
        self.region = region
        self._counts: Counter[tuple[str, str, int]] = Counter()

    def count(self, account_id: str, sku: str, quantity: int = 1) -> None:
        """Count use at this moment."""
        self._counts[account_id, sku, self._clock() // HOUR] += quantity

    def take(self) -> Mapping[Use, int]:
        """Return the counts, and reset them to zero."""
        taken, self._counts = self._counts, Counter()
        return {
            Use(account_id, self.region, sku, hour): quantity
            for (account_id, sku, hour), quantity in taken.items()
        }

    def put_back(self, taken: Mapping[Use, int]) -> None:
        """Count again what could not be written."""
        for use, quantity in taken.items():
            self._counts[use.account_id, use.sku, use.hour] += quantity


def requests_counter(meter: Meter, skus: Sequence[Sku]) -> Callable[[str, str], None]:
    """Return what counts a request of an account to a family: by its own SKU, if there is one."""
    own = {sku.service: sku.name for sku in skus if sku.name == f"{sku.service}.{REQUESTS}"}

    def count(account_id: str, family: str) -> None:
        meter.count(account_id, own.get(family, REQUESTS_OF_API.name))

    return count


METER: Final[Port[Meter]] = Port("metering.meter")
"""The counts of the process."""

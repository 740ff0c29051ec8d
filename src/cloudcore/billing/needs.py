"""Dependencies of billing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from cloudcore.billing.processor import PROCESSOR, Processor
from cloudcore.clock import Clock
from cloudcore.db.base import Database
from cloudcore.events import EVENTS, Events
from cloudcore.metering.sku import SKUS, Sku
from cloudcore.ports import Opening, Port


class Price(Protocol):
    """The price of one unit of a SKU in a region."""

    @property
    def sku(self) -> str:
        """Return the name of the SKU."""

    @property
    def region(self) -> str:
        """Return the name of the region."""

    @property
    def unit(self) -> str:
        """Return the name of the unit."""

    @property
    def currency(self) -> str:
        """Return the currency, by ISO 4217."""

    @property
    def amount(self) -> str:
        """Return the price of one unit, a decimal number."""


Prices = Callable[[], Sequence[Price]]
"""Returns the current prices of the catalogue."""
PRICES: Final[Port[Prices]] = Port("billing.prices")


@dataclass(frozen=True, slots=True, kw_only=True)
class BillingNeeds:
    """The dependencies of the routes, jobs and timers of billing."""

    database: Database
    clock: Clock
    new_id: Callable[[], str]
    processor: Processor
    prices: Prices
    skus: Sequence[Sku]
    events: Events


async def open_needs(opening: Opening) -> BillingNeeds:
    """Return what the billing family needs in this process."""
    install = opening.install
    return BillingNeeds(
        database=install.database,
        clock=install.clock,
        new_id=install.new_id,
        processor=await opening.get(PROCESSOR),
        prices=await opening.get(PRICES),
        skus=await opening.get(SKUS),
        events=await opening.get(EVENTS),
    )

"""A served install with prices, whose accounts use things, and months that pass."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import msgspec

from cloudcore.billing import invoice_rows
from cloudcore.billing.charging import job_kind
from cloudcore.billing.closing import close_months
from cloudcore.billing.invoice_routes import shown
from cloudcore.billing.needs import BillingNeeds, Prices
from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.metering import usage
from cloudcore.metering.sku import BYTE_HOURS_PER_GIB_MONTH, Sku
from cloudcore.wire import moment_of
from tests.inprocess import ManualClock
from tests.integration.served_world import Served, Tenant, open_served
from tests.jobs import run_due

REGION: Final = "local"
# Names that no family reports, so that what the tenants are furnished with does not count.
STORAGE: Final = Sku("try.storage", "bytes", "GiB-month", divisor=BYTE_HOURS_PER_GIB_MONTH)
MESSAGES: Final = Sku("try.messages", "messages", "1000 messages", divisor=1000)
REQUESTS: Final = Sku("try.requests", "requests", "request")
FREE: Final = Sku("try.free", "messages", "message")
SKUS: Final = (STORAGE, MESSAGES, REQUESTS, FREE)
PRICES: Final = {STORAGE: "0.0213", MESSAGES: "0.105", REQUESTS: "0.000004"}
HOUR: Final = 3600
DAY: Final = 24 * HOUR


def moment(year: int, month: int, day: int = 1, hour: int = 0) -> int:
    """Return a moment in UTC."""
    return moment_of(datetime(year, month, day, hour, tzinfo=UTC))


@dataclass
class World:
    """A served install, with the needs of billing."""

    served: Served
    needs: BillingNeeds

    @property
    def acme(self) -> Tenant:
        """Return the tenant that most tests are about."""
        return self.served.acme

    def token(self, tenant: Tenant | None = None) -> str:
        """Return an access token of a tenant's program, which is good for an hour from now."""
        return self.served.fresh_token(tenant)

    def at(self, year: int, month: int, day: int = 1, hour: int = 0) -> None:
        """Let it be this time."""
        self.served.clock.now = moment(year, month, day, hour)

    async def use(self, account_id: str, sku: Sku, quantity: int, at: int) -> None:
        """Report a use of the smallest unit at a moment."""
        await self.served.database.write(usage.report, account_id, REGION, sku.name, quantity, at)

    async def close(self) -> None:
        """Close the months that have ended."""
        await close_months(self.needs)

    async def run_jobs(self) -> None:
        """Run the jobs of billing that are due."""
        await run_due(self.served.database, [job_kind(self.needs)], self.served.clock)

    async def ask(
        self, method: str, path: str, body: object = None, *, key: str = ""
    ) -> httpx.Response:
        """Send a request of the program of acme."""
        headers = {"Idempotency-Key": key} if key else {}
        return await self.served.ask(method, path, body, token=self.token(), headers=headers)

    async def invoices(self, tenant: Tenant | None = None) -> list[dict[str, Any]]:
        """Return the invoices of a tenant with their lines."""
        owner = (tenant or self.acme).organization_id

        def read(tx: Connection) -> list[dict[str, Any]]:
            found = invoice_rows.list_invoices(tx, owner, invoice_rows.Asked(), "", 100)
            return [msgspec.to_builtins(shown(tx, each).invoice) for each in found]

        return await self.served.database.read(read)

    async def add_method(self, token: str, **more: object) -> dict[str, Any]:
        """Add a payment method, which becomes the default."""
        body = {"type": "card", "token": token, "is_default": True, **more}
        made: dict[str, Any] = await self.served.make(
            "/v1/payment-methods", body, token=self.token()
        )
        return made

    async def owing(self, token: str = "tok_visa") -> dict[str, Any]:
        """Return a new open invoice of acme, whose default payment method has this token."""
        await self.add_method(token)
        now = self.served.clock
        month = datetime.fromtimestamp(now() / MICROSECONDS, UTC)
        await self.use(self.acme.account_id, MESSAGES, 12_345, now())
        before = {each["id"] for each in await self.invoices()}
        year, index = divmod(month.year * 12 + month.month, 12)
        self.at(year, index + 1, 1, 3)
        await self.close()
        (made,) = [each for each in await self.invoices() if each["id"] not in before]
        return made


class Price(NamedTuple):
    """What one unit costs."""

    sku: str
    region: str
    unit: str
    currency: str
    amount: str


def priced(prices: Mapping[Sku, str], currency: str = "EUR") -> Prices:
    """Return a catalogue of these prices."""
    found = [Price(sku.name, REGION, sku.unit, currency, each) for sku, each in prices.items()]
    return lambda: found


@asynccontextmanager
async def open_world(data: Path, database_url: str = "", **changes: object) -> AsyncIterator[World]:
    """Open a served install at the beginning of October 2026, without invoices."""
    clock = ManualClock(moment(2026, 10, 1))
    async with open_served(data, database_url, clock=clock, **changes) as served:
        needs = replace(served.billing, skus=SKUS, prices=priced(PRICES))
        world = World(served, needs)
        await served.database.write(_forget_invoices)
        yield world


def _forget_invoices(tx: Connection) -> None:
    """Delete the invoices that each tenant has."""
    from cloudcore.billing.tables import invoices  # noqa: PLC0415
    from cloudcore.db.statement import Statement  # noqa: PLC0415

    tx.execute(Statement(invoices.delete()))

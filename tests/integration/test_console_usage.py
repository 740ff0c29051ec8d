"""The page of usage: plots with tables beside them, of the account and of an organization."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from decimal import Decimal

import pytest

from cloudcore.db.base import Connection
from cloudcore.metering.usage import HOUR, KEPT_HOURS, SkuUse, add, forget_hours
from registry.console.pages.account.usage import _text
from tests.integration.console_shop import Shop, open_shop

DAY = 24 * HOUR


@pytest.fixture
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shop]:
    folder = tmp_path_factory.mktemp("usage")
    catalog = folder / "catalog.json"
    price = {"service": "queue", "region": "local", "currency": "EUR"}
    prices = [
        {**price, "sku": "queue.requests", "unit": "1000 requests", "amount": "0.40"},
        {**price, "sku": "registry.pulls", "service": "registry", "unit": "1000 pulls"}
        | {"amount": "0.00"},
    ]
    region = {"name": "local", "display_name": "Here", "status": "available", "endpoints": {}}
    catalog.write_text(json.dumps({"regions": [region], "prices": prices}))
    async with open_shop(folder / "data", catalog_file=str(catalog)) as shop:
        # What it took to make the tenants.
        now = shop.served.clock()
        await shop.served.database.write(forget_hours, now + (KEPT_HOURS + 1) * HOUR)
        yield shop


def rows_of(page: str, sku: str) -> list[tuple[str, str]]:
    """Return the table of a SKU's days."""
    _, _, rest = page.partition(f'<h2 id="{sku}">')
    section, _, _ = rest.partition("</section>")
    return re.findall(r'<th scope="row">([^<]*)</th><td class="number"[^>]*>([^<]*)</td>', section)


async def test_usage_is_shown_as_a_plot_and_as_a_table(shop: Shop) -> None:
    empty = (await shop.browser.get("/console/usage")).text
    assert "Nothing was used in 30 days." in empty
    account, today = shop.served.acme.account_id, shop.served.clock() // DAY

    def use(tx: Connection) -> None:
        for days, quantity in ((0, 5000), (1, 250), (29, 2000), (30, 90_000)):
            hour = (today - days) * 24
            add(tx, {SkuUse(account, "local", "queue.requests", hour): quantity})
        add(tx, {SkuUse(account, "local", "registry.pulls", today * 24): 1})
        add(tx, {SkuUse(shop.served.globex.account_id, "local", "kms.requests", today * 24): 7})

    await shop.served.database.write(use)
    page = (await shop.browser.get("/console/usage")).text
    rows = rows_of(page, "queue.requests")
    assert len(rows) == 30
    assert [amount for _, amount in rows if amount != "0"] == ["2", "0.25", "5"]
    assert rows[0][1] == "2"
    assert rows[-1][1] == "5"
    assert page.count('<svg class="series"') == 2
    assert "Requests of queues by day, 7.25 1000 requests in all" in page
    assert re.search(r'data-label="Cost">2\.90 EUR</td>', page)
    assert re.search(r'data-label="Cost">none</td>', page)
    assert "kms.requests" not in page
    # In the order of the price list.
    assert page.index('id="registry.pulls"') < page.index('id="queue.requests"')
    week = (await shop.browser.get("/console/usage?days=7")).text
    assert [amount for _, amount in rows_of(week, "queue.requests") if amount != "0"] == [
        "0.25",
        "5",
    ]
    hours = rows_of((await shop.browser.get("/console/usage?days=1")).text, "queue.requests")
    assert len(hours) == 24
    for odd in ("days=0", "days=x", "days=8"):
        assert (
            len(rows_of((await shop.browser.get(f"/console/usage?{odd}")).text, "registry.pulls"))
            == 30
        )


async def test_an_owner_sees_what_each_account_of_an_organization_used(shop: Shop) -> None:
    acme, today = shop.served.acme, shop.served.clock() // DAY
    use = {SkuUse(acme.account_id, "local", "queue.requests", today * 24): 3000}
    await shop.served.database.write(add, use)
    page = (await shop.browser.get(f"/console/people/{acme.organization_id}/usage")).text
    assert ("acme", "3") in rows_of(page, "queue.requests")
    foreign = f"/console/people/{shop.served.globex.organization_id}/usage"
    assert (await shop.browser.get(foreign)).status_code == 404


def test_amounts_have_four_digits_at_least() -> None:
    written = {
        "0": "0",
        "0.000000000001": "0.000000000001",
        "0.0012345678": "0.001235",
        "1.5": "1.5",
        "12.3456": "12.35",
        "123456.789": "123,457",
    }
    assert {given: _text(Decimal(given)) for given in written} == written

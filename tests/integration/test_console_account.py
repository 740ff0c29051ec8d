"""Pages of an account: its use, quotas and storage, in pictures with words beside them."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from decimal import Decimal

import pytest
from sqlalchemy import bindparam

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.metering.usage import HOUR, KEPT_HOURS, SkuUse, add, forget_hours
from cloudcore.quotas.limits import put_limit, remove_limit
from registry.console.pages.account.usage import _text
from registry.metadata.tables import blob_objects
from tests.integration.console_access import see
from tests.integration.console_shop import Shop, digest_of, open_shop

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
    empty = await see(shop, "/console/usage")
    assert "Nothing was used in 30 days." in empty
    account, today = shop.served.acme.account_id, shop.served.clock() // DAY

    def use(tx: Connection) -> None:
        for days, quantity in ((0, 5000), (1, 250), (29, 2000), (30, 90_000)):
            hour = (today - days) * 24
            add(tx, {SkuUse(account, "local", "queue.requests", hour): quantity})
        add(tx, {SkuUse(account, "local", "registry.pulls", today * 24): 1})
        add(tx, {SkuUse(shop.served.globex.account_id, "local", "kms.requests", today * 24): 7})

    await shop.served.database.write(use)
    page = await see(shop, "/console/usage")
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
    week = await see(shop, "/console/usage?days=7")
    used = [amount for _, amount in rows_of(week, "queue.requests") if amount != "0"]
    assert used == ["0.25", "5"]
    hours = rows_of(await see(shop, "/console/usage?days=1"), "queue.requests")
    assert len(hours) == 24
    for odd in ("days=0", "days=x", "days=8"):
        shown = rows_of(await see(shop, f"/console/usage?{odd}"), "registry.pulls")
        assert len(shown) == 30


async def test_an_owner_sees_what_each_account_of_an_organization_used(shop: Shop) -> None:
    acme, today = shop.served.acme, shop.served.clock() // DAY
    use = {SkuUse(acme.account_id, "local", "queue.requests", today * 24): 3000}
    await shop.served.database.write(add, use)
    page = await see(shop, f"/console/people/{acme.organization_id}/usage")
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


QUOTAS = "/console/settings/quotas"


async def quota_row(shop: Shop, name: str) -> str:
    page = await see(shop, QUOTAS)
    assert " style=" not in page
    rows: list[str] = re.findall(r"<tr>.*?</tr>", page, re.DOTALL)
    (row,) = [each for each in rows if f">{name}<" in each]
    return row


async def test_each_quota_is_shown_with_its_use(shop: Shop) -> None:
    account_id, database = shop.served.acme.account_id, shop.served.database
    there = await quota_row(shop, "queues")
    (used,) = map(int, re.findall(r'data-label="Used">(\d+)<', there))
    assert f'role="img" aria-label="queues: {used} of 1,000"' in there
    assert "Most of it is used" not in there

    await database.write(put_limit, account_id, "queues", used, 1)
    full = await quota_row(shop, "queues")
    assert f'data-label="Limit">{used}<span class="under quiet">otherwise 1,000<' in full
    assert "Nothing can be added." in full
    await database.write(put_limit, account_id, "queues", 5, 1)
    for number in range(4 - used):
        await shop.make("/v1/queues", {"name": f"q{number}"})
    assert "Most of it is used." in await quota_row(shop, "queues")
    assert await database.write(remove_limit, account_id, "queues")
    assert "Most of it is used." not in await quota_row(shop, "queues")
    of_each = await quota_row(shop, "queue_messages")
    assert "per queue" in of_each
    assert "<svg" not in of_each
    assert 'data-label="Limit">any number<' in await quota_row(shop, "registry_bytes")
    assert "1.1 TB" in await quota_row(shop, "bucket_bytes")


async def test_the_settings_lead_there(shop: Shop) -> None:
    assert f'href="{QUOTAS}"' in await see(shop, "/console/settings")


_DAMAGE = Statement(
    blob_objects.update()
    .where(blob_objects.c.digest == bindparam("of"))
    .values(damage=bindparam("found"), damaged_at=bindparam("now"))
)

_UNSEALED = Statement(blob_objects.update().values(stored_size=blob_objects.c.size))
_STORED = Statement(
    blob_objects.update()
    .where(blob_objects.c.digest == bindparam("of"))
    .values(stored_size=bindparam("stored"))
)


async def test_damaged_blobs_are_shown_with_the_images_that_need_them(shop: Shop) -> None:
    image = await shop.image("damaged", "v1")
    whole = await shop.browser.get("/console/storage")
    assert (whole.status_code, "Damaged blobs" in whole.text) == (200, False)
    layer = digest_of(b"damaged")
    await shop.served.database.write(
        lambda tx: tx.execute(_DAMAGE, of=layer, found="digest", now=1_000_000)
    )
    page = await see(shop, "/console/storage")
    assert "The stored bytes of 1 blob are missing or wrong" in page
    assert f'title="{layer}"' in page
    assert "its bytes changed" in page
    assert f'title="{image["digest"]}"' in page
    assert ">v1</a>" in page


async def test_what_compression_saves_is_shown_if_it_is_something(shop: Shop) -> None:
    await shop.image("damaged", "v1")
    assert "saved by compression" not in await see(shop, "/console/storage")
    layer = digest_of(b"damaged")
    await shop.served.database.write(lambda tx: tx.execute(_UNSEALED))
    await shop.served.database.write(lambda tx: tx.execute(_STORED, of=layer, stored=2))
    page = await see(shop, "/console/storage")
    assert '<b title="5 bytes">5 B</b> more saved by compression' in page

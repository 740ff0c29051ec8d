"""The page of quotas: what the account has and may have, in words beside the bars."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest

from cloudcore.quotas.limits import put_limit, remove_limit
from tests.integration.console_shop import Shop, open_shop

PATH = "/console/settings/quotas"


@pytest.fixture
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shop]:
    async with open_shop(tmp_path_factory.mktemp("quotas") / "data") as shop:
        yield shop


async def row_of(shop: Shop, name: str) -> str:
    page = (await shop.browser.get(PATH)).text
    assert " style=" not in page
    rows: list[str] = re.findall(r"<tr>.*?</tr>", page, re.DOTALL)
    (row,) = [each for each in rows if f">{name}<" in each]
    return row


async def test_each_quota_is_shown_with_its_use(shop: Shop) -> None:
    account_id, database = shop.served.acme.account_id, shop.served.database
    there = await row_of(shop, "queues")
    (used,) = map(int, re.findall(r'data-label="Used">(\d+)<', there))
    assert f'role="img" aria-label="queues: {used} of 1,000"' in there
    assert "Most of it is used" not in there

    await database.write(put_limit, account_id, "queues", used, 1)
    full = await row_of(shop, "queues")
    assert f'data-label="Limit">{used}<span class="under quiet">otherwise 1,000<' in full
    assert "Nothing can be added." in full
    await database.write(put_limit, account_id, "queues", 5, 1)
    for number in range(4 - used):
        made = {"name": f"q{number}"}
        await shop.served.make("/v1/queues", made, token=shop.served.acme.program_token)
    assert "Most of it is used." in await row_of(shop, "queues")
    assert await database.write(remove_limit, account_id, "queues")
    assert "Most of it is used." not in await row_of(shop, "queues")
    of_each = await row_of(shop, "queue_messages")
    assert "of each queue" in of_each
    assert "<svg" not in of_each
    assert 'data-label="Limit">any number<' in await row_of(shop, "registry_bytes")
    assert "1.1 TB" in await row_of(shop, "bucket_bytes")


async def test_the_settings_lead_there(shop: Shop) -> None:
    assert f'href="{PATH}"' in (await shop.browser.get("/console/settings")).text

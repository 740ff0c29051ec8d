"""Database clusters on the console: made, connected to, backed up, restored and deleted."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from cloudcore.databases.clusters.cluster import Schedule
from cloudcore.databases.clusters.rows import CLUSTERS
from cloudcore.db.base import Connection
from tests.integration.console_databases import LIST, furnish_cluster
from tests.integration.console_shop import Shop, open_shop


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    async with open_shop(tmp_path / "data") as shop:
        yield shop


async def _see(shop: Shop, path: str, status: int = 200) -> str:
    answer = await shop.browser.get(path)
    assert answer.status_code == status, answer.text
    return html.unescape(answer.text)


async def _send(shop: Shop, path: str, status: int = 303, /, **fields: str) -> Any:  # noqa: ANN401
    answer = await shop.browser.post(path, data={"csrf": "csrf", **fields})
    assert answer.status_code == status, answer.text
    return answer


async def test_a_registered_server_is_told_with_a_password_that_is_never_shown_again(
    shop: Shop,
) -> None:
    secret = "  between two spaces "
    fields = {"register_name": "legacy", "host": "db.example.com", "username": "backup"}
    path = f"{LIST}/register"
    wrong = (await _send(shop, path, 400, **{**fields, "password": secret, "port": "0"})).text
    assert secret not in wrong
    assert 'value="db.example.com"' in wrong
    assert re.search(r'id="port"[^>]* aria-invalid="true"', wrong)
    taken = await _send(shop, path, 400, **{**fields, "register_name": "No Name"}, password="x")
    assert re.search(r'id="register_name"[^>]* aria-invalid="true"', taken.text)
    there = (await _send(shop, path, 303, **{**fields, "password": secret})).headers["location"]
    shown = await _see(shop, there)
    assert secret not in shown
    assert "host=db.example.com port=5432 dbname=postgres user=backup sslmode=require" in shown
    assert "Stop this" not in shown
    assert "Reset its owner" not in shown

    def find(tx: Connection) -> Any:  # noqa: ANN401
        return CLUSTERS.find(tx, shop.served.acme.account_id, there.rpartition("/")[2])

    from cloudcore.databases.clusters.states import open_password  # noqa: PLC0415

    found = await shop.served.database.read(find)
    assert open_password(shop.served.keyring, found) == secret


async def test_backups_are_drawn_and_told(shop: Shop) -> None:
    found = await furnish_cluster(shop)

    def plan(tx: Connection) -> None:
        old = CLUSTERS.lock(tx, shop.served.acme.account_id, found.cluster)
        crons = Schedule(base_cron="0 3 * * 0", incremental_cron="0 3 * * 1-6")
        CLUSTERS.save(tx, structs.replace(old, schedule=crons))

    await shop.served.database.write(plan)
    shown = await _see(shop, found.page)
    _, _, picture = shown.partition('<svg class="map backups"')
    picture = picture.partition("</svg>")[0]
    looks = ("proved", "whole", "failed", "planned", "waiting")
    drawn = {name: picture.count(f'<g class="{name}"') - 1 for name in looks}  # but the legend
    assert drawn == {"proved": 1, "whole": 1, "failed": 1, "planned": 2, "waiting": 0}
    assert picture.count('class="way"') == 1  # from the base to what needs it
    assert "whole, never restored" in picture
    assert "1 restored as a proof, 1 failed" in picture
    assert "Any moment of this can be restored" in picture
    assert "Next base backup" in shown
    assert "BACKUP_FAILED: the bucket is <full>" in shown
    assert "never restored" in shown
    # The cluster, its backups, and what may be done with them.
    shop.calls.clear()
    await _see(shop, found.page)
    assert len(shop.calls) == 3
    async with shop.browser_that_may("database:GetCluster") as browser:
        limited = (await browser.get(found.page)).text
        assert "Your role may not see its backups." in limited
        for words in ('<svg class="map', "Back up now", "Restore to", "Save the sch", "Delete"):
            assert words not in limited

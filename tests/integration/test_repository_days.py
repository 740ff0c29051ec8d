"""What repositories hold and how often they are pulled, by day: recorded, returned and drawn."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from cloudcore.db.base import Connection
from registry.console.drawing import WIDTH, series
from registry.console.pages.overview import stale
from registry.metadata.repositories import days as rows
from registry.metadata.repositories.days import (
    DAY,
    KEPT_DAYS,
    add_pulls,
    forget_days,
    list_account_days,
    measure_batch,
    sizes_on,
)
from registry.services.images.pulls import PullLog
from tests.databases import on_both_databases
from tests.integration.console_shop import Shop, open_shop
from tests.integration.pushing import World


@pytest.fixture
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shop]:
    async with open_shop(tmp_path_factory.mktemp("days") / "data") as shop:
        yield shop


async def measure(world: World, day: int) -> None:
    after: str | None = ""
    while after is not None:
        after = await world.install.database.write(measure_batch, day, after)


@on_both_databases
async def test_sizes_and_pulls_are_kept_by_day(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "_BATCH", 2)
    database, today = world.install.database, world.install.clock() // DAY
    image = await world.push_image("one", "v1")
    others = [await world.another(f"other-{number}") for number in range(4)]
    second = await others[0].push_image("two, larger", "v1")
    ids = {
        each["digest"]: (await which.get(f"/images/{each['digest']}"))["image"]["id"]
        for which, each in ((world, image), (others[0], second))
    }
    first, other = ids[image["digest"]], ids[second["digest"]]

    def pulled(tx: Connection) -> None:
        add_pulls(tx, {(first, today): 2, (other, today): 1, ("gone", today): 9})
        add_pulls(tx, {(first, today): 3, (first, today - 1): 4})

    await database.write(pulled)
    for _ in range(2):  # what is measured again is replaced, and keeps its pulls
        await measure(world, today)
    account_id = (await world.record())["crn"].split(":")[3]
    sizes = {
        each.name: each.size_bytes for each in await database.read(sizes_on, account_id, today)
    }
    assert len(sizes) == 5
    assert sizes["app"] == (await world.record())["size_bytes"] > 0
    found = await database.read(list_account_days, account_id, today - 5, today)
    assert [(each.day, each.pulls) for each in found] == [(today - 1, 4), (today, 6)]
    assert found[1].size_bytes == sum(sizes.values())

    later = (today + KEPT_DAYS) * DAY
    assert await database.write(forget_days, later) == 1
    assert await database.write(forget_days, later) == 0
    while await database.write(forget_days, later + DAY):
        pass
    assert await database.read(list_account_days, account_id, 0, today) == []


async def test_pulls_are_counted_as_they_are_noted(world: World) -> None:
    image = await world.push_image("one", "v1")
    found = (await world.get(f"/images/{image['digest']}"))["image"]
    log = PullLog(world.install.database, world.install.clock)
    for _ in range(3):
        log.note(found["id"])
    await log.flush()
    await log.flush()
    account_id = (await world.record())["crn"].split(":")[3]
    days = await world.install.database.read(list_account_days, account_id, 0, 1 << 30)
    assert [each.pulls for each in days] == [3]


async def test_an_overview_shows_what_grew(shop: Shop) -> None:
    empty = (await shop.browser.get("/console/overview")).text
    assert "No day is recorded yet." in empty
    database, today = shop.served.database, shop.served.clock() // DAY
    await database.write(measure_batch, today - 7, "")
    await shop.image("grown", "1")
    await database.write(measure_batch, today, "")
    token = shop.served.acme.program_token
    answer = await shop.served.ask("GET", "/v1/storage-usage/history?days=8", token=token)
    history = answer.json()["storage_history"]
    assert len(history["days"]) == 2
    assert history["days"][0]["size_bytes"] < history["days"][1]["size_bytes"]
    (grown,) = history["repositories"]
    assert (grown["repository"]["name"], grown["size_bytes_before"]) == ("shop", 0)
    short = await shop.served.ask("GET", "/v1/storage-usage/history?days=7", token=token)
    assert short.json()["storage_history"]["repositories"] == []
    for days in ("0", "367", "x"):
        path = f"/v1/storage-usage/history?days={days}"
        assert (await shop.served.ask("GET", path, token=token)).status_code == 400

    page = (await shop.browser.get("/console/overview?days=30")).text
    assert page.count('<svg class="series"') == 2
    assert '<a href="/console/acme/shop">shop</a>' in page
    assert "Nothing is." in page
    assert "What the collector does" in page


def test_a_series_is_as_wide_as_its_days() -> None:
    drawn = series([(0, "none"), (1, "<a>"), (1000, "most")], "only", '"quoted"')
    heights = [float(each) for each in re.findall(r'height="([0-9.]+)"', drawn)]
    assert heights == [0.0, 3.0, 160.0]
    places = [float(each) for each in re.findall(r' x="([0-9.]+)"', drawn)]
    assert places == pytest.approx([0, WIDTH / 3, 2 * WIDTH / 3], abs=0.01)
    assert "<a>" not in drawn
    assert "<rect" not in series([], "only", "nothing")


def test_what_nobody_used_lately_is_stale() -> None:
    def repository(name: str, size: int, **moments: str) -> dict[str, Any]:
        known = {"created_at": "2026-01-01T00:00:00Z", "last_pushed_at": None}
        return {"name": name, "size_bytes": size, "last_pulled_at": None, **known, **moments}

    found = stale(
        [
            repository("small", 1),
            repository("large", 9, last_pushed_at="2026-01-02T00:00:00Z"),
            repository("empty", 0),
            repository("pulled", 9, last_pulled_at="2026-03-01T00:00:00Z"),
        ],
        datetime(2026, 2, 1, tzinfo=UTC),
    )
    assert [each["name"] for each in found] == ["large", "small"]

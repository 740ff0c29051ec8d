"""What repositories hold and how often they are pulled, by day: recorded, returned and drawn."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from registry.console.pages.repositories.storage import MEASURED_SECONDS
from registry.console.rendering import WIDTH, series
from registry.metadata.repositories import daily_usage as rows
from registry.metadata.repositories.daily_usage import (
    DAY,
    KEPT_DAYS,
    add_pulls,
    forget_account_days,
    forget_days,
    list_account_days,
    list_growth,
)
from registry.services.images.pulls import PullLog
from registry.services.repositories.daily_usage import EVERY_SECONDS, measure_day
from tests.databases import on_both_databases
from tests.integration.console_shop import Shop, open_shop
from tests.integration.counting import CountingConnection
from tests.integration.pushing import World
from tests.recount import querying


@pytest.fixture
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shop]:
    async with open_shop(tmp_path_factory.mktemp("days") / "data") as shop:
        yield shop


@on_both_databases
async def test_sizes_and_pulls_are_kept_by_day(
    world: World, metadata_url: str, monkeypatch: pytest.MonkeyPatch
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
        await measure_day(database, today)
    account_id = (await world.record())["crn"].split(":")[3]
    sizes = [(await each.record())["size_bytes"] for each in (world, *others)]
    assert sizes[0] > 0
    found = await database.read(list_account_days, account_id, today - 5, today)
    assert [(each.day, each.pulls) for each in found] == [(today - 1, 4), (today, 6)]
    assert found[1].size_bytes == sum(sizes)
    with querying(metadata_url) as query:
        kept = query("SELECT day, size_bytes, pulls FROM repository_days WHERE pulls > 0")
    assert sorted(map(tuple, kept)) == sorted(
        [(today - 1, sizes[0], 4), (today, sizes[0], 5), (today, sizes[1], 1)]
    )

    # The first pull of a day finds the size of the day before.
    await database.write(add_pulls, {(first, today + 1): 1})
    (later,) = await database.read(list_account_days, account_id, today + 1, today + 1)
    assert (later.size_bytes, later.pulls) == (sum(sizes), 1)

    over = (today + KEPT_DAYS) * DAY
    for forget in (forget_days, forget_account_days):
        assert await database.write(forget, over) == 1
        assert await database.write(forget, over) == 0
        while await database.write(forget, over + 2 * DAY):
            pass
    assert await database.read(list_account_days, account_id, 0, today + 1) == []


@on_both_databases
async def test_what_grew_is_kept_for_each_span(world: World) -> None:
    database, clock = world.install.database, world.install.clock
    account_id = world.account.id
    old = await world.another("old")
    await old.push_image("one")
    start = clock() // DAY
    for day in (start, start + 1):
        await measure_day(database, day)
    before = (await old.record())["size_bytes"]
    assert [each.name for each in await database.read(list_growth, account_id, 7, 9)] == ["old"]

    await world.pass_seconds(8 * 24 * 3600)
    await (await world.another("new")).push_image("four, the longest one of all images")
    await (await world.another("empty")).push_image("1")
    await old.pass_seconds(0)
    await old.push_image("three")
    for day in range(start + 2, start + 9):
        await measure_day(database, day)
    grown = await database.read(list_growth, account_id, 7, 9)
    after = (await old.record())["size_bytes"]
    assert [(each.name, each.before, each.size_bytes) for each in grown if each.name == "old"] == (
        []  # it was measured with this size on each day of the span
    )
    longer = {each.name: each for each in await database.read(list_growth, account_id, 30, 9)}
    assert (longer["old"].before, longer["old"].size_bytes) == (0, after)
    assert before < after
    await old.push_image("two layers")
    await measure_day(database, start + 8)
    (again,) = (
        each for each in await database.read(list_growth, account_id, 7, 9) if each.name == "old"
    )
    assert (again.before, again.size_bytes) == (after, (await old.record())["size_bytes"])
    assert grown == sorted(grown, key=lambda each: -abs(each.size_bytes - each.before))
    assert len(await database.read(list_growth, account_id, 30, 1)) == 1


@on_both_databases
async def test_what_nobody_used_lately_is_stale(world: World) -> None:
    database = world.install.database
    names = [f"old-{number}" for number in range(3)]
    for name in names:
        await (await world.another(name)).push_image(name)
        await world.pass_seconds(1)
    pulled = await world.another("pulled")
    image = await pulled.push_image("pulled")
    await world.another("without-bytes")
    await world.pass_seconds(100 * 24 * 3600)
    await (await world.another("fresh")).push_image("fresh")

    async def listed(**query: object) -> Any:  # noqa: ANN401 - a document
        answer = await world.control.get("/v1/repositories/stale", params=cast("Any", query))
        assert answer.status_code == 200, answer.text
        return answer.json()

    assert (await listed())["meta"]["total"] == 0  # nothing is measured yet
    await measure_day(database, world.install.clock() // DAY)
    found = await listed()
    assert [each["name"] for each in found["repositories"]] == [*names, "pulled"]
    assert found["meta"]["total"] == 4
    assert (await listed(days=101))["repositories"] == []
    first = await listed(limit=1)
    rest = await listed(limit=3, marker=first["meta"]["marker"])
    told = [each["name"] for page in (first, rest) for each in page["repositories"]]
    assert told == [*names, "pulled"]
    assert not rest["meta"]["has_more"]

    # What is used after the measurement is left out at once, and no longer counted after the next.
    log = PullLog(database, world.install.clock)
    log.note((await pulled.get(f"/images/{image['digest']}"))["image"]["id"])
    await log.flush()
    found = await listed()
    assert [each["name"] for each in found["repositories"]] == names
    path = f"/v1/repositories/{found['repositories'][0]['id']}?force=true"
    assert (await world.control.delete(path)).status_code == 204
    assert [each["name"] for each in (await listed())["repositories"]] == names[1:]
    await measure_day(database, world.install.clock() // DAY)
    assert (await listed())["meta"]["total"] == 2
    for days in ("0", "3661", "x"):
        answer = await world.control.get("/v1/repositories/stale", params={"days": days})
        assert answer.status_code == 400


async def test_a_batch_of_pulls_takes_no_statement_for_a_pull(world: World) -> None:
    images = [await world.push_image(f"image {number}") for number in range(5)]
    ids = [(await world.get(f"/images/{each['digest']}"))["image"]["id"] for each in images]
    statements: list[Statement] = []

    def add(tx: Connection) -> None:
        add_pulls(CountingConnection(tx, statements), {(each, 20_000): 9 for each in ids})

    await world.install.database.write(add)
    assert len(statements) == 3  # whose they are, the repository's day, the account's day


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
    assert "Nothing is measured yet." in empty
    database, today = shop.served.database, shop.served.clock() // DAY
    await measure_day(database, today - 7)
    await shop.image("grown", "1")
    await measure_day(database, today)
    token = shop.served.acme.program_token
    answer = await shop.served.ask("GET", "/v1/storage-usage/history?days=8", token=token)
    history = answer.json()["storage_history"]
    assert len(history["days"]) == 2
    assert history["days"][0]["size_bytes"] < history["days"][1]["size_bytes"]
    (grown,) = (each for each in history["repositories"] if each["repository"]["name"] == "shop")
    assert (grown["repository"]["name"], grown["size_bytes_before"]) == ("shop", 0)
    assert history["growth_days"] == 30
    short = await shop.served.ask("GET", "/v1/storage-usage/history?days=7", token=token)
    told = short.json()["storage_history"]
    assert (len(told["days"]), told["growth_days"]) == (1, 7)
    for days in ("0", "367", "x"):
        path = f"/v1/storage-usage/history?days={days}"
        assert (await shop.served.ask("GET", path, token=token)).status_code == 400

    page = (await shop.browser.get("/console/overview?days=30")).text
    assert page.count('<svg class="series"') == 2
    assert '<a href="/console/acme/shop">shop</a>' in page
    assert "Nothing is." in page
    assert "What the collector does" in page


async def test_an_overview_shows_what_is_stored_before_the_first_measurement(shop: Shop) -> None:
    await shop.image("new", "1")
    usage = await shop.served.ask(
        "GET", "/v1/storage-usage?group_by=repository", token=shop.served.acme.program_token
    )
    size = sum(each["size_bytes"] for each in usage.json()["storage_usage"]["repositories"])

    async def check(words: str) -> None:
        page = (await shop.browser.get("/console/overview")).text
        assert f'<b title="{size:,} bytes">' in page
        assert page.count(f'<rect class="only" x="{WIDTH * 29 / 30:.2f}"') == 1
        assert re.search(words, page), page

    await check("Nothing is measured yet. The first measurement is <time[^>]*>in ")
    # The first pull of a day makes a day without a measured size.
    image = (await shop.call("GET", "/images"))["images"][0]
    today = shop.served.clock() // DAY
    await shop.served.database.write(add_pulls, {(image["id"], today): 1})
    await check("Nothing is measured yet.")
    await measure_day(shop.served.database, today)
    await check('<a href="/console/acme/shop">shop</a>')


def test_the_overview_knows_when_repositories_are_measured() -> None:
    assert MEASURED_SECONDS == EVERY_SECONDS  # the console imports no service


def test_a_series_is_as_wide_as_its_days() -> None:
    drawn = series([(0, "none"), (1, "<a>"), (1000, "most")], "only", '"quoted"')
    heights = [float(each) for each in re.findall(r'height="([0-9.]+)"', drawn)]
    assert heights == [0.0, 3.0, 160.0]
    places = [float(each) for each in re.findall(r' x="([0-9.]+)"', drawn)]
    assert places == pytest.approx([WIDTH * each / 30 for each in (27, 28, 29)], abs=0.01)
    full = series([(1, "day")] * 50, "only", "more than a month")
    first = re.search(r' x="([0-9.]+)" y="[0-9.]+" width="([0-9.]+)"', full)
    assert first is not None
    assert [float(each) for each in first.groups()] == [0, WIDTH / 50 - 2]
    assert "<a>" not in drawn
    assert "<rect" not in series([], "only", "nothing")

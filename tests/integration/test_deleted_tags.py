"""Deleted tags on both databases: what is listed, in which order, and until when."""

from __future__ import annotations

from typing import Any

from registry.gc.purge import purge_deleted_tags, purge_tombstones
from registry.metadata.settings import AccountSettings, put_settings
from tests.integration.pushing import refused
from tests.integration.restoration_world import DAY, Shop, open_again, open_shop
from tests.recount import check_counters, querying
from tests.tenants import Install


async def listed(shop: Shop, limit: int = 2) -> list[str]:
    """Return the names of the deleted tags, read in pages."""
    names: list[str] = []
    query: dict[str, Any] = {"limit": limit}
    while True:
        answer = await shop.client.get(f"{shop.path}/deleted-tags", params=query)
        assert answer.status_code == 200, answer.text
        body = answer.json()
        names += [each["tag"] for each in body["tags"]]
        if not body["meta"]["has_more"]:
            assert body["meta"]["total"] == len(names)
            return names
        query["marker"] = body["meta"]["marker"]


async def set_undelete_days(install: Install, url: str, days: int) -> None:
    with querying(url) as query:
        account_id = query("SELECT id FROM accounts WHERE handle = 'acme'")[0][0]
    await install.database.write(
        put_settings, account_id, AccountSettings(undelete_days=days), install.clock()
    )


def check(url: str) -> None:
    with querying(url) as query:
        check_counters(query, "acme")


async def test_they_are_listed_last_deleted_first_until_they_are_tags_again(
    install: Install, database_url: str
) -> None:
    async with open_shop(install) as shop:
        for tag in ("a", "b", "c", "d", "e"):
            await shop.push("one", tag)
        for tag in ("c", "a", "e", "b"):
            await shop.delete(tag)
        assert await listed(shop) == ["b", "e", "a", "c"]
        await shop.push("two", "e")
        assert (await shop.client.post(f"{shop.path}/tags/c/restore")).status_code == 200
        assert await listed(shop) == ["b", "a"]
        refused(await shop.client.post(f"{shop.path}/tags/e/restore"), 409, "CONFLICT")
        await shop.delete("e")
        assert await listed(shop) == ["e", "b", "a"]
    check(database_url)


async def test_they_come_and_go_with_their_image(install: Install, database_url: str) -> None:
    async with open_shop(install) as shop:
        digest = await shop.push("one", "a")
        await shop.push("one", "b")
        await shop.push("two", "other")
        await shop.delete("other")
        await shop.delete("a")
        await shop.delete(digest)
        assert await listed(shop) == ["other"]
        refused(await shop.client.post(f"{shop.path}/tags/b/restore"), 409, "CONFLICT")
        check(database_url)
        assert await shop.push("one") == digest  # not restored: pushed again
        assert await listed(shop) == ["b", "a", "other"]
        await shop.delete(digest)
        assert (await shop.restore(digest))["failures"] == []
        assert await listed(shop) == ["b", "a", "other"]
    check(database_url)


async def test_they_go_for_good_with_an_image_that_does(
    install: Install, database_url: str
) -> None:
    async with open_shop(install) as shop:
        digest = await shop.push("one", "a")
        await shop.push("one", "b")
        await shop.delete("a")
        await set_undelete_days(install, database_url, 0)
        await shop.delete("b")
        assert await listed(shop) == ["a"]  # as was promised when it was deleted
        await shop.delete(digest)
        refused(await shop.client.post(f"{shop.path}/tags/a/restore"), 404, "NOT_FOUND")
        assert await shop.push("one") == digest
        assert await listed(shop) == []
    check(database_url)


async def test_they_wait_no_longer_than_their_image(install: Install, database_url: str) -> None:
    async with open_shop(install) as shop:
        digest = await shop.push("one", "a")
        await shop.delete("a")
        await set_undelete_days(install, database_url, 1)
        await shop.delete(digest)
        install.clock.advance(DAY)
        assert await purge_tombstones(install.ctx) == 1
    async with open_again(install) as shop:
        refused(await shop.client.post(f"{shop.path}/tags/a/restore"), 404, "NOT_FOUND")
    check(database_url)


async def test_their_time_ends_without_any_change(install: Install, database_url: str) -> None:
    async with open_shop(install) as shop:
        await shop.push("one", "a")
        await shop.push("one", "b")
        await set_undelete_days(install, database_url, 1)
        await shop.delete("a")
        await set_undelete_days(install, database_url, 7)
        await shop.delete("b")
        assert await listed(shop) == ["b", "a"]
        install.clock.advance(DAY)
    async with open_again(install) as shop:
        assert await listed(shop) == ["b"]
        refused(await shop.client.post(f"{shop.path}/tags/a/restore"), 404, "NOT_FOUND")
        await purge_deleted_tags(install.ctx)
        assert await listed(shop) == ["b"]
    with querying(database_url) as query:
        assert [row[0] for row in query("SELECT name FROM deleted_tags")] == ["b"]
    check(database_url)

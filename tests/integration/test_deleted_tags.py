"""Deleted tags on both databases: what is listed, in which order, and until when."""

from __future__ import annotations

from typing import Any

from registry.gc.purge import purge_deleted_tags, purge_tombstones
from tests.databases import on_both_databases
from tests.integration.pushing import refused
from tests.integration.restoration_world import DAY, UndoWorld

pytestmark = on_both_databases


async def listed(undo: UndoWorld) -> list[str]:
    """Return the names of the deleted tags, read in pages."""
    names: list[str] = []
    query: dict[str, Any] = {"limit": 2}
    while True:
        page = await undo.get("/deleted-tags", **query)
        names += [each["tag"] for each in page["tags"]]
        if not page["meta"]["has_more"]:
            assert page["meta"]["total"] == len(names)
            return names
        query["marker"] = page["meta"]["marker"]


async def test_they_are_listed_last_deleted_first_until_they_are_tags_again(
    undo: UndoWorld,
) -> None:
    for tag in ("a", "b", "c", "d", "e"):
        await undo.image(b"one", tag=tag)
    for tag in ("c", "a", "e", "b"):
        await undo.delete(tag)
    assert await listed(undo) == ["b", "e", "a", "c"]
    await undo.image(b"two", tag="e")
    assert (await undo.restore_tag("c")).status_code == 200
    assert await listed(undo) == ["b", "a"]
    refused(await undo.restore_tag("e"), 409, "CONFLICT")
    await undo.delete("e")
    assert await listed(undo) == ["e", "b", "a"]


async def test_they_come_and_go_with_their_image(undo: UndoWorld) -> None:
    digest = await undo.image(b"one", tag="a")
    await undo.image(b"one", tag="b")
    await undo.image(b"two", tag="other")
    await undo.delete("other")
    await undo.delete("a")
    await undo.delete(digest)
    assert await listed(undo) == ["other"]
    refused(await undo.restore_tag("b"), 409, "CONFLICT")
    undo.check()
    assert await undo.image(b"one") == digest  # not restored: pushed again
    assert await listed(undo) == ["b", "a", "other"]
    await undo.delete(digest)
    assert (await undo.restore(digest))["failures"] == []
    assert await listed(undo) == ["b", "a", "other"]


async def test_they_go_for_good_with_an_image_that_does(undo: UndoWorld) -> None:
    digest = await undo.image(b"one", tag="a")
    await undo.image(b"one", tag="b")
    await undo.delete("a")
    await undo.set_undelete_days(0)
    await undo.delete("b")
    assert await listed(undo) == ["a"]  # as was promised when it was deleted
    await undo.delete(digest)
    refused(await undo.restore_tag("a"), 404, "NOT_FOUND")
    assert await undo.image(b"one") == digest
    assert await listed(undo) == []


async def test_they_wait_no_longer_than_their_image(undo: UndoWorld) -> None:
    digest = await undo.image(b"one", tag="a")
    await undo.delete("a")
    await undo.set_undelete_days(1)
    await undo.delete(digest)
    await undo.pass_seconds(DAY)
    assert await purge_tombstones(undo.install.ctx) == 1
    refused(await undo.restore_tag("a"), 404, "NOT_FOUND")


async def test_their_time_ends_without_any_change(undo: UndoWorld) -> None:
    await undo.image(b"one", tag="a")
    await undo.image(b"one", tag="b")
    await undo.set_undelete_days(1)
    await undo.delete("a")
    await undo.set_undelete_days(7)
    await undo.delete("b")
    assert await listed(undo) == ["b", "a"]
    await undo.pass_seconds(DAY)
    assert await listed(undo) == ["b"]
    refused(await undo.restore_tag("a"), 404, "NOT_FOUND")
    await purge_deleted_tags(undo.install.ctx)
    assert await listed(undo) == ["b"]
    assert [row[0] for row in undo.query("SELECT name FROM deleted_tags")] == ["b"]

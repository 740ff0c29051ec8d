"""Undo: what was deleted is gone at once, and for a while can be had again.

`tests.property.test_control_model` restores in orders that chance draws, most of them on SQLite;
here is what it does not look at.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta

import pytest
from sqlalchemy import bindparam, text

from cloudcore.db.statement import Statement
from registry.gc.purge import forget_tag_history, purge_deleted_repositories, purge_tombstones
from registry.oci.digest import digest_of
from registry.services.images import restoration
from tests.databases import on_both_databases
from tests.integration.pushing import PATH, create, refused
from tests.integration.restoration_world import DAY, UndoWorld

_END = Statement(
    text("UPDATE deleted_manifests SET restorable_until = 1 WHERE digest = :over").bindparams(
        bindparam("over")
    )
)


async def test_a_deleted_image_comes_back_as_it_was(undo: UndoWorld) -> None:
    digest = await undo.image(b"one", tag="v1")
    await undo.put(f"{digest}?tag=a&tag=b", (await undo.pull("v1")).content)
    before = await undo.get(f"/images/{digest}")
    pulled = await undo.pull(digest)

    await undo.delete(digest)
    for reference in (digest, "v1", "a", "b"):
        assert not await undo.pulls(reference)
    refused(await undo.control.get(f"{undo.path}/images/{digest}"), 404, "NOT_FOUND")
    (found,) = await undo.deleted()
    assert found["digest"] == digest
    assert found["tags"] == ["a", "b", "v1"]
    assert found["deleted_by"].endswith(":service-account/ci")
    ends = datetime.fromisoformat(found["restorable_until"])
    assert ends - datetime.fromisoformat(found["deleted_at"]) == timedelta(days=7)

    outcome = await undo.restore(digest)
    assert outcome == {"restored": [{"digest": digest, "tags": ["a", "b", "v1"]}], "failures": []}
    assert (await undo.pull("b")).content == pulled.content
    assert await undo.get(f"/images/{digest}") == before
    assert await undo.deleted() == []
    assert await undo.restore(digest) == {
        "restored": [],
        "failures": [
            {"digest": digest, "code": "CONFLICT", "message": f"the image {digest} is not deleted"}
        ],
    }


async def test_one_request_restores_so_many_images_and_no_more(
    undo: UndoWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes statements of the one writer, and an index may list thousands."""
    monkeypatch.setattr(restoration, "MAX_RESTORED", 4)
    children = [await undo.image(f"{number}".encode()) for number in range(4)]
    digest = await undo.index(*children, tag="v1")
    for each in (digest, *children):
        await undo.delete(each)
    outcome = await undo.restore(digest, children[0])
    (failure,) = outcome["failures"]
    assert (failure["digest"], failure["code"]) == (digest, "CONFLICT")
    assert "more than 4" in failure["message"]
    assert [each["digest"] for each in outcome["restored"]] == children[:1]
    outcome = await undo.restore(children[1], digest)
    assert len(outcome["restored"]) == 4  # with the one before it was its turn
    assert await undo.pulls("v1")


async def test_an_index_does_not_come_back_without_what_it_lists(undo: UndoWorld) -> None:
    """As when what was deleted has fewer days since then."""
    kept, over = await undo.image(b"kept"), await undo.image(b"over")
    digest = await undo.index(kept, over, tag="v1")
    for each in (digest, kept, over):
        await undo.delete(each)
    await undo.install.database.write(lambda tx: tx.execute(_END, over=over))
    outcome = await undo.restore(digest)
    words = f"{digest} lists {over}, which cannot be restored any more"
    failure = {"digest": digest, "code": "CONFLICT", "message": words}
    assert outcome == {"restored": [], "failures": [failure]}
    assert {each["digest"] for each in await undo.deleted()} == {digest, kept}
    undo.check()


@on_both_databases
async def test_after_its_time_a_deleted_image_is_gone_for_good(undo: UndoWorld) -> None:
    digest = await undo.image(b"one", tag="v1")
    await undo.delete(digest)
    undo.install.clock.advance(7 * DAY - 1)
    assert await purge_tombstones(undo.install.ctx) == 0
    await undo.pass_seconds(1)
    assert await undo.deleted() == []
    (failure,) = (await undo.restore(digest))["failures"]
    assert failure["code"] == "NOT_FOUND"
    assert await purge_tombstones(undo.install.ctx) == 1
    for table in ("deleted_manifests", "deleted_manifest_blobs", "manifest_bodies"):
        assert undo.query(f"SELECT count(*) FROM {table}")[0][0] == 0


@on_both_databases
async def test_the_objects_of_a_deleted_image_cannot_be_collected(undo: UndoWorld) -> None:
    """The database itself refuses it, whatever a collector believes."""
    digest = await undo.image(b"held", tag="v1")
    await undo.delete(digest)
    blob = f"/v2/{undo.name}/blobs/{digest_of(b'held')}"
    assert (await undo.docker.delete(blob)).status_code == 202
    assert (await undo.docker.get(blob)).status_code == 404
    held = str(digest_of(b"held"))
    links = undo.query("SELECT count(*) FROM repository_blobs WHERE digest = ?", held)
    assert links[0][0] == 0
    refusal = ""
    try:
        undo.query("DELETE FROM blob_objects WHERE digest = ?", held)
    except Exception as error:  # noqa: BLE001 - each driver has its own
        refusal = type(error).__name__
    if not undo.url.startswith("sqlite"):  # which enforces keys when asked to
        assert refusal == "ForeignKeyViolation"
        assert len((await undo.restore(digest))["restored"]) == 1
        assert (await undo.docker.get(blob)).content == b"held"


async def test_a_deleted_repository_comes_back_with_all_it_held(undo: UndoWorld) -> None:
    digest = await undo.image(b"one", tag="v1")
    lost = await undo.image(b"two")
    await undo.delete(lost)
    before = await undo.record()
    assert (await undo.control.delete(f"{undo.path}?force=true")).status_code == 204
    assert not await undo.pulls("v1")
    listed = (await undo.control.get(f"{PATH}/deleted")).json()
    (found,) = listed["repositories"]
    for name in ("id", "crn", "name", "uri"):
        assert found[name] == before[name]
    assert (found["image_count"], found["tag_count"]) == (1, 1)
    assert found["deleted_by"].endswith(":service-account/ci")
    assert listed["meta"]["total"] == 1

    other = await create(undo.control, "app")
    refused(await undo.control.post(f"{undo.path}/restore"), 409, "CONFLICT")
    await undo.control.delete(f"{PATH}/{other['id']}")
    answer = await undo.control.post(f"{undo.path}/restore")
    assert answer.status_code == 200, answer.text
    assert answer.json()["repository"] == {
        **before,
        "updated_at": answer.json()["repository"]["updated_at"],
    }
    assert (await undo.pull("v1")).headers["docker-content-digest"] == digest
    assert len((await undo.restore(lost))["restored"]) == 1
    # Who asks again, for no answer came, is told that it is not lost.
    refused(await undo.control.post(f"{undo.path}/restore"), 409, "CONFLICT")


@on_both_databases
async def test_a_repository_whose_time_is_over_goes_with_its_tombstones(undo: UndoWorld) -> None:
    await undo.image(b"one", tag="v1")
    await undo.delete(await undo.image(b"two"))
    assert (await undo.control.delete(f"{undo.path}?force=true")).status_code == 204
    undo.install.clock.advance(7 * DAY)
    assert await purge_deleted_repositories(undo.install.ctx) == 1
    for table in ("repositories", "manifests", "deleted_manifests", "tag_events",
                  "manifest_bodies", "repository_blobs"):  # fmt: skip
        assert undo.query(f"SELECT count(*) FROM {table}")[0][0] == 0


async def test_a_tag_tells_what_became_of_it_and_by_whom(undo: UndoWorld) -> None:
    one, two = await undo.image(b"one", tag="v1"), await undo.image(b"two")
    moved = await undo.control.put(f"{undo.path}/tags/v1", json={"digest": two})
    assert moved.status_code == 200, moved.text
    await undo.delete("v1")
    listed = await undo.get("/deleted-tags")
    assert [each["tag"] for each in listed["tags"]] == ["v1"]
    assert listed["meta"]["total"] == 1
    answer = await undo.restore_tag("v1")
    assert answer.json() == {"tag": {"name": "v1", "digest": two}}
    assert await undo.history("v1") == [
        ("restored", None, two),
        ("deleted", two, None),
        ("moved", one, two),
        ("created", None, one),
    ]
    page = await undo.get("/tags/v1/history", limit=3)
    assert page["meta"]["total"] == 4
    last = await undo.get("/tags/v1/history", limit=3, marker=page["meta"]["marker"])
    assert [each["action"] for each in last["history"]] == ["created"]
    assert last["history"][0]["principal"].endswith(":service-account/ci")
    refused(await undo.restore_tag("v1"), 409, "CONFLICT")
    refused(await undo.restore_tag("v9"), 404, "NOT_FOUND")
    refused(await undo.control.get(f"{undo.path}/tags/v9/history"), 404, "NOT_FOUND")
    assert (await undo.get("/deleted-tags"))["tags"] == []


async def test_a_restored_tag_names_its_image_as_it_was_pushed(undo: UndoWorld) -> None:
    body = (await undo.pull(await undo.image(b"one"))).content
    alias = f"sha512:{hashlib.sha512(body).hexdigest()}"
    pushed = await undo.put(f"{alias}?tag=v1", body)
    assert pushed.status_code == 201, pushed.text
    assert (await undo.pull("v1")).headers["docker-content-digest"] == alias
    await undo.delete("v1")
    answer = await undo.restore_tag("v1")
    assert answer.status_code == 200, answer.text
    assert (await undo.pull("v1")).headers["docker-content-digest"] == alias


async def test_a_restored_tag_keeps_the_time_of_its_creation(undo: UndoWorld) -> None:
    digest = await undo.image(b"one", tag="v1")
    for deleted in ("v1", digest):
        tag = (await undo.get("/tags/v1"))["tag"]
        undo.install.clock.advance(60)
        await undo.delete(deleted)
        undo.install.clock.advance(60)
        if deleted == digest:
            await undo.restore(digest)
        else:
            assert (await undo.restore_tag("v1")).status_code == 200
        restored = (await undo.get("/tags/v1"))["tag"]
        assert restored["created_at"] == tag["created_at"]
        assert restored["updated_at"] > tag["updated_at"]


@on_both_databases
async def test_history_is_forgotten_after_a_year(undo: UndoWorld) -> None:
    await undo.image(b"one", tag="v1")
    undo.install.clock.advance(365 * DAY - 1)
    await forget_tag_history(undo.install.ctx)
    assert undo.query("SELECT count(*) FROM tag_events")[0][0] == 1
    undo.install.clock.advance(1)
    await forget_tag_history(undo.install.ctx)
    assert undo.query("SELECT count(*) FROM tag_events")[0][0] == 0


@on_both_databases
async def test_deleted_tags_are_listed_last_deleted_first(undo: UndoWorld) -> None:
    async def listed() -> list[str]:
        return [each["tag"] for each in (await undo.get("/deleted-tags"))["tags"]]

    for tag in ("a", "b", "c", "d", "e"):
        await undo.image(b"one", tag=tag)
    for tag in ("c", "a", "e", "b"):
        await undo.delete(tag)
    assert await listed() == ["b", "e", "a", "c"]
    await undo.image(b"two", tag="e")
    assert (await undo.restore_tag("c")).status_code == 200
    assert await listed() == ["b", "a"]
    refused(await undo.restore_tag("e"), 409, "CONFLICT")
    await undo.delete("e")
    assert await listed() == ["e", "b", "a"]

"""Undo on both databases: what was deleted is gone at once, and for a while can be had again.

`tests.property.test_control_model` restores in every order; here is what it does not look at.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta

import pytest

from registry.gc.purge import forget_tag_history, purge_deleted_repositories, purge_tombstones
from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_INDEX
from registry.services.images import restoration
from tests.databases import on_both_databases
from tests.integration.repositories_world import (
    PATH,
    create,
    push_manifest,
    refused,
)
from tests.integration.restoration_world import DAY, KIND, open_again, open_shop
from tests.recount import check_counters, querying
from tests.tenants import Install, open_install

pytestmark = on_both_databases


async def test_a_deleted_image_comes_back_as_it_was(install: Install, database_url: str) -> None:
    async with open_shop(install) as shop:
        digest = await shop.push("one", "v1")
        await shop.docker.put(
            f"/v2/acme/r/manifests/{digest}?tag=a&tag=b",
            content=(await shop.pull("v1")).content,
            headers={"content-type": KIND},
        )
        before = (await shop.client.get(f"{shop.path}/images/{digest}")).json()
        pulled = await shop.pull(digest)
        assert pulled.status_code == 200

        await shop.delete(digest)
        for reference in (digest, "v1", "a", "b"):
            assert (await shop.pull(reference)).status_code == 404
        refused(await shop.client.get(f"{shop.path}/images/{digest}"), 404, "NOT_FOUND")
        (found,) = await shop.deleted()
        assert found["digest"] == digest
        assert found["tags"] == ["a", "b", "v1"]
        assert found["deleted_by"].endswith(":service-account/ci")
        ends = datetime.fromisoformat(found["restorable_until"])
        assert ends - datetime.fromisoformat(found["deleted_at"]) == timedelta(days=7)

        outcome = await shop.restore(digest)
        assert outcome == {
            "restored": [{"digest": digest, "tags": ["a", "b", "v1"]}],
            "failures": [],
        }
        assert (await shop.pull("b")).content == pulled.content
        assert (await shop.client.get(f"{shop.path}/images/{digest}")).json() == before
        assert await shop.deleted() == []
        assert await shop.restore(digest) == {
            "restored": [],
            "failures": [
                {
                    "digest": digest,
                    "code": "CONFLICT",
                    "message": f"the image {digest} is not deleted",
                }
            ],
        }
    with querying(database_url) as query:
        check_counters(query, "acme")


async def test_one_request_restores_so_many_images_and_no_more(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes statements of the one writer, and an index may list thousands."""

    monkeypatch.setattr(restoration, "MAX_RESTORED", 4)
    async with open_install(database_url) as install, open_shop(install) as shop:
        children = [await shop.push(f"{number}") for number in range(4)]
        listed = [{"mediaType": KIND, "digest": each, "size": 1} for each in children]
        index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": listed}
        digest: str = (await push_manifest(shop.docker, index, "v1"))["digest"]
        for each in (digest, *children):
            await shop.delete(each)
        outcome = await shop.restore(digest, children[0])
        (failure,) = outcome["failures"]
        assert (failure["digest"], failure["code"]) == (digest, "CONFLICT")
        assert "more than 4" in failure["message"]
        assert [each["digest"] for each in outcome["restored"]] == children[:1]
        outcome = await shop.restore(children[1], digest)
        assert len(outcome["restored"]) == 4  # with the one before it was its turn
        assert (await shop.pull("v1")).status_code == 200


async def test_after_its_time_a_deleted_image_is_gone_for_good(
    install: Install, database_url: str
) -> None:
    async with open_shop(install) as shop:
        digest = await shop.push("one", "v1")
        await shop.delete(digest)
        install.clock.advance(7 * DAY - 1)
        assert await purge_tombstones(install.ctx) == 0
        install.clock.advance(1)
    async with open_again(install) as shop:
        assert await shop.deleted() == []
        (failure,) = (await shop.restore(digest))["failures"]
        assert failure["code"] == "NOT_FOUND"
        assert await purge_tombstones(install.ctx) == 1
    with querying(database_url) as query:
        for table in ("deleted_manifests", "deleted_manifest_blobs", "manifest_bodies"):
            assert query(f"SELECT count(*) FROM {table}")[0][0] == 0


async def test_the_objects_of_a_deleted_image_cannot_be_collected(
    install: Install, database_url: str
) -> None:
    """The database itself refuses it, whatever a collector believes."""

    async with open_shop(install) as shop:
        digest = await shop.push("held", "v1")
        await shop.delete(digest)
        blob = digest_of(b"held")
        assert (await shop.docker.delete(f"/v2/acme/r/blobs/{blob}")).status_code == 202
        assert (await shop.docker.get(f"/v2/acme/r/blobs/{blob}")).status_code == 404
        with querying(database_url) as query:
            links = query("SELECT count(*) FROM repository_blobs WHERE digest = ?", blob)
            assert links[0][0] == 0
            refusal = ""
            try:
                query("DELETE FROM blob_objects WHERE digest = ?", blob)
            except Exception as error:  # noqa: BLE001 - each driver has its own
                refusal = type(error).__name__
            if not database_url.startswith("sqlite"):  # which enforces keys when asked to
                assert refusal == "ForeignKeyViolation"
        if not database_url.startswith("sqlite"):
            assert len((await shop.restore(digest))["restored"]) == 1
            assert (await shop.docker.get(f"/v2/acme/r/blobs/{blob}")).content == b"held"


async def test_a_deleted_repository_comes_back_with_all_it_held(
    install: Install, database_url: str
) -> None:
    async with open_shop(install) as shop:
        digest = await shop.push("one", "v1")
        lost = await shop.push("two")
        await shop.delete(lost)
        before = (await shop.client.get(shop.path)).json()["repository"]
        assert (await shop.client.delete(f"{shop.path}?force=true")).status_code == 204
        assert (await shop.pull("v1")).status_code == 404
        listed = (await shop.client.get(f"{PATH}/deleted")).json()
        (found,) = listed["repositories"]
        for name in ("id", "crn", "name", "uri"):
            assert found[name] == before[name]
        assert (found["image_count"], found["tag_count"]) == (1, 1)
        assert found["deleted_by"].endswith(":service-account/ci")
        assert listed["meta"]["total"] == 1

        other = await create(shop.client, "r")
        refused(await shop.client.post(f"{shop.path}/restore"), 409, "CONFLICT")
        await shop.client.delete(f"{PATH}/{other['id']}")
        answer = await shop.client.post(f"{shop.path}/restore")
        assert answer.status_code == 200, answer.text
        assert answer.json()["repository"] == {
            **before,
            "updated_at": answer.json()["repository"]["updated_at"],
        }
        assert (await shop.pull("v1")).headers["docker-content-digest"] == digest
        assert len((await shop.restore(lost))["restored"]) == 1
        # Who asks again, for no answer came, is told that it is not lost.
        refused(await shop.client.post(f"{shop.path}/restore"), 409, "CONFLICT")
    with querying(database_url) as query:
        check_counters(query, "acme")


async def test_a_repository_whose_time_is_over_goes_with_its_tombstones(
    install: Install, database_url: str
) -> None:
    async with open_shop(install) as shop:
        await shop.push("one", "v1")
        await shop.delete(await shop.push("two"))
        assert (await shop.client.delete(f"{shop.path}?force=true")).status_code == 204
        install.clock.advance(7 * DAY)
        assert await purge_deleted_repositories(install.ctx) == 1
    with querying(database_url) as query:
        for table in ("repositories", "manifests", "deleted_manifests", "tag_events",
                      "manifest_bodies", "repository_blobs"):  # fmt: skip
            assert query(f"SELECT count(*) FROM {table}")[0][0] == 0


async def test_a_tag_tells_what_became_of_it_and_by_whom(install: Install) -> None:
    async with open_shop(install) as shop:
        one, two = await shop.push("one", "v1"), await shop.push("two")
        moved = await shop.client.put(f"{shop.path}/tags/v1", json={"digest": two})
        assert moved.status_code == 200, moved.text
        await shop.delete("v1")
        listed = (await shop.client.get(f"{shop.path}/deleted-tags")).json()
        assert [each["tag"] for each in listed["tags"]] == ["v1"]
        assert listed["meta"]["total"] == 1
        answer = await shop.client.post(f"{shop.path}/tags/v1/restore")
        assert answer.json() == {"tag": {"name": "v1", "digest": two}}
        assert await shop.history("v1") == [
            ("restored", None, two),
            ("deleted", two, None),
            ("moved", one, two),
            ("created", None, one),
        ]
        page = (await shop.client.get(f"{shop.path}/tags/v1/history?limit=3")).json()
        assert page["meta"]["total"] == 4
        last = (
            await shop.client.get(
                f"{shop.path}/tags/v1/history",
                params={"limit": 3, "marker": page["meta"]["marker"]},
            )
        ).json()
        assert [each["action"] for each in last["history"]] == ["created"]
        assert last["history"][0]["principal"].endswith(":service-account/ci")
        refused(await shop.client.post(f"{shop.path}/tags/v1/restore"), 409, "CONFLICT")
        refused(await shop.client.post(f"{shop.path}/tags/v9/restore"), 404, "NOT_FOUND")
        refused(await shop.client.get(f"{shop.path}/tags/v9/history"), 404, "NOT_FOUND")
        assert (await shop.client.get(f"{shop.path}/deleted-tags")).json()["tags"] == []


async def test_a_restored_tag_names_its_image_as_it_was_pushed(install: Install) -> None:
    async with open_shop(install) as shop:
        body = (await shop.pull(await shop.push("one"))).content
        alias = f"sha512:{hashlib.sha512(body).hexdigest()}"
        pushed = await shop.docker.put(
            f"/v2/acme/r/manifests/{alias}?tag=v1",
            content=body,
            headers={"content-type": KIND},
        )
        assert pushed.status_code == 201, pushed.text
        assert (await shop.pull("v1")).headers["docker-content-digest"] == alias
        await shop.delete("v1")
        answer = await shop.client.post(f"{shop.path}/tags/v1/restore")
        assert answer.status_code == 200, answer.text
        assert (await shop.pull("v1")).headers["docker-content-digest"] == alias


@pytest.mark.parametrize("is_image", [False, True])
async def test_a_restored_tag_keeps_the_time_of_its_creation(
    install: Install, *, is_image: bool
) -> None:
    async with open_shop(install) as shop:
        digest = await shop.push("one", "v1")
        tag = (await shop.client.get(f"{shop.path}/tags/v1")).json()["tag"]
        install.clock.advance(60)
        await shop.delete(digest if is_image else "v1")
        install.clock.advance(60)
        path = "images/restore" if is_image else "tags/v1/restore"
        body = {"digests": [digest]} if is_image else None
        answer = await shop.client.post(f"{shop.path}/{path}", json=body)
        assert answer.status_code == 200, answer.text
        restored = (await shop.client.get(f"{shop.path}/tags/v1")).json()["tag"]
        assert restored["created_at"] == tag["created_at"]
        assert restored["updated_at"] > tag["updated_at"]


async def test_history_is_forgotten_after_a_year(install: Install, database_url: str) -> None:
    async with open_shop(install) as shop:
        await shop.push("one", "v1")
        install.clock.advance(365 * DAY - 1)
        await forget_tag_history(install.ctx)
        with querying(database_url) as query:
            assert query("SELECT count(*) FROM tag_events")[0][0] == 1
        install.clock.advance(1)
        await forget_tag_history(install.ctx)
        with querying(database_url) as query:
            assert query("SELECT count(*) FROM tag_events")[0][0] == 0


async def test_deleted_tags_are_listed_last_deleted_first_until_they_are_tags_again(
    install: Install, database_url: str
) -> None:
    async with open_shop(install) as shop:

        async def listed() -> list[str]:
            answer = await shop.client.get(f"{shop.path}/deleted-tags")
            return [each["tag"] for each in answer.json()["tags"]]

        for tag in ("a", "b", "c", "d", "e"):
            await shop.push("one", tag)
        for tag in ("c", "a", "e", "b"):
            await shop.delete(tag)
        assert await listed() == ["b", "e", "a", "c"]
        await shop.push("two", "e")
        assert (await shop.client.post(f"{shop.path}/tags/c/restore")).status_code == 200
        assert await listed() == ["b", "a"]
        refused(await shop.client.post(f"{shop.path}/tags/e/restore"), 409, "CONFLICT")
        await shop.delete("e")
        assert await listed() == ["e", "b", "a"]
    with querying(database_url) as query:
        check_counters(query, "acme")

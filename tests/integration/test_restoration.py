"""Undo on both databases: what was deleted is gone at once, and for a while can be had again."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta

import pytest

from registry.gc.purge import forget_tag_history, purge_deleted_repositories, purge_tombstones
from registry.metadata.settings import AccountSettings, put_settings
from registry.oci.digest import digest_of
from registry.services.images import restoration
from tests.databases import on_both_databases
from tests.integration.pushing import PATH, Pusher, create, push_index, refused
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


async def test_an_index_brings_back_the_children_it_needs(
    install: Install, database_url: str
) -> None:
    async with open_shop(install) as shop:
        await push_index(shop.docker)
        index = (await shop.pull("v1")).headers["docker-content-digest"]
        children = [each["digest"] for each in (await shop.pull("v1")).json()["manifests"]]
        await shop.delete(index)
        for child in children:
            await shop.delete(child)
        assert len(await shop.deleted()) == 3

        outcome = await shop.restore(index)
        assert [each["digest"] for each in outcome["restored"]][-1] == index
        assert {each["digest"] for each in outcome["restored"]} == {index, *children}
        refused(await shop.client.delete(f"{shop.path}/images/{children[0]}"), 409, "CONFLICT")
        for digest in children:
            assert (await shop.pull(digest)).status_code == 200
    with querying(database_url) as query:
        check_counters(query, "acme")


async def test_one_request_restores_so_many_images_and_no_more(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes statements of the one writer, and an index may list thousands."""

    monkeypatch.setattr(restoration, "MAX_RESTORED", 4)
    async with open_install(database_url) as install, open_shop(install) as shop:
        children = [await shop.push(f"{number}") for number in range(4)]
        digest = await Pusher(shop.docker, "acme/r").index(*children, tag="v1")
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


async def test_an_index_whose_child_is_gone_stays_away_with_the_others(
    install: Install, database_url: str
) -> None:
    async with open_shop(install) as shop:
        await push_index(shop.docker)
        index = (await shop.pull("v1")).headers["docker-content-digest"]
        children = [each["digest"] for each in (await shop.pull("v1")).json()["manifests"]]
        await shop.delete(index)
        with querying(database_url) as query:
            account_id = query("SELECT id FROM accounts WHERE handle = 'acme'")[0][0]
        await install.database.write(
            put_settings, account_id, AccountSettings(undelete_days=0), install.clock()
        )
        await shop.delete(children[0])
        await install.database.write(put_settings, account_id, AccountSettings(), install.clock())
        await shop.delete(children[1])
        assert {each["digest"] for each in await shop.deleted()} == {index, children[1]}

        (failure,) = (await shop.restore(index))["failures"]
        assert (failure["digest"], failure["code"]) == (index, "CONFLICT")
        assert children[0] in failure["message"]
        assert (await shop.pull(children[1])).status_code == 404
        assert len((await shop.restore(children[1]))["restored"]) == 1
    with querying(database_url) as query:
        check_counters(query, "acme")


async def test_tags_that_mean_something_else_by_now_stay_where_they_are(install: Install) -> None:
    async with open_shop(install) as shop:
        old = await shop.push("old", "latest")
        await shop.docker.put(
            f"/v2/acme/r/manifests/{old}?tag=v1",
            content=(await shop.pull("latest")).content,
            headers={"content-type": KIND},
        )
        await shop.delete(old)
        new = await shop.push("new", "latest")
        outcome = await shop.restore(old)
        assert outcome["restored"] == [{"digest": old, "tags": ["v1"]}]
        assert (await shop.pull("latest")).headers["docker-content-digest"] == new
        assert await shop.history("latest") == [
            ("created", None, new),
            ("deleted", old, None),
            ("created", None, old),
        ]
        assert (await shop.history("v1"))[0] == ("restored", None, old)


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


async def test_an_image_pushed_again_meanwhile_needs_no_restoration(install: Install) -> None:
    async with open_shop(install) as shop:
        first = await shop.push("same", "v1")
        await shop.delete(first)
        assert await shop.push("same", "v2") == first
        assert (await shop.restore(first))["failures"][0]["code"] == "CONFLICT"
        await shop.delete(first)
        (found,) = await shop.deleted()
        assert found["tags"] == ["v2"]
        assert (await shop.restore(first))["restored"] == [{"digest": first, "tags": ["v2"]}]


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


async def test_a_tag_does_not_come_back_without_its_image(install: Install) -> None:
    async with open_shop(install) as shop:
        digest = await shop.push("one", "v1")
        await shop.delete("v1")
        await shop.delete(digest)
        assert (await shop.client.get(f"{shop.path}/deleted-tags")).json()["tags"] == []
        answer = await shop.client.post(f"{shop.path}/tags/v1/restore")
        refused(answer, 409, "CONFLICT")
        assert digest in answer.json()["error"]["message"]
        await shop.restore(digest)
        assert (await shop.client.post(f"{shop.path}/tags/v1/restore")).status_code == 200


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


async def test_the_deleted_are_paged_the_last_deleted_first(install: Install) -> None:
    async with open_shop(install) as shop:
        digests = [await shop.push(f"{number}") for number in range(7)]
        for digest in digests:
            await shop.delete(digest)
        seen: list[str] = []
        marker = None
        while True:
            params = {"limit": 3, **({"marker": marker} if marker else {})}
            answer = await shop.client.get(f"{shop.path}/images/deleted", params=params)
            seen += [each["digest"] for each in answer.json()["images"]]
            marker = answer.json()["meta"].get("marker")
            assert answer.json()["meta"]["total"] == 7
            if marker is None:
                break
        assert sorted(seen) == sorted(digests)
        assert len(seen) == 7

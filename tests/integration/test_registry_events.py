"""Events of the registry on both databases: in the outbox if and only if a rule asks for them."""

from __future__ import annotations

import json
from typing import Any

import httpx

from tests.integration.pushing import PATH, create
from tests.integration.restoration_world import KIND, Shop, open_shop
from tests.recount import querying
from tests.tenants import HOST, Install
from tests.topics import add_topics


async def add_rule(shop: Shop, *types: str, prefix: str = "", topic: str = "builds") -> str:
    """Ask for events and return the topic's CRN."""
    body = {
        "topic": f"crn:notifications:local:acme:topic/{topic}",
        "event_types": list(types),
        "repository_prefix": prefix,
    }
    await add_topics(shop.install.database, "acme", topic)
    answer = await shop.client.post("/v1/event-rules", json=body)
    assert answer.status_code == 201, answer.text
    found: str = answer.json()["event_rule"]["topic"]["crn"]
    return found


def told(url: str) -> list[tuple[str, dict[str, Any]]]:
    """Return type and payload of each event in the outbox, in order."""
    with querying(url) as query:
        rows = query("SELECT type, payload FROM outbox ORDER BY sequence")
    return [(row[0], json.loads(row[1])) for row in rows]


async def put(shop: Shop, reference: str, body: bytes) -> httpx.Response:
    return await shop.docker.put(
        f"/v2/acme/r/manifests/{reference}", content=body, headers={"content-type": KIND}
    )


async def test_every_kind_of_change_is_told_once(install: Install, database_url: str) -> None:
    async with open_shop(install) as shop:
        topic = await add_rule(shop, "registry.*")
        digest = await shop.push("one", "v1")
        body = (await shop.pull("v1")).content
        assert (await put(shop, "v1", body)).status_code == 201  # changes nothing
        assert (await put(shop, "v2", body)).status_code == 201
        await shop.delete("v2")
        await shop.delete(digest)
        await shop.restore(digest)
        other = await create(shop.client, "other")
        await shop.client.delete(f"{PATH}/{other['id']}")

        events = told(database_url)
        assert [(kind, payload["data"]["tag"]) for kind, payload in events] == [
            ("registry.image.pushed", "v1"),
            ("registry.tag.moved", "v1"),
            ("registry.image.pushed", "v2"),  # the same image under another tag
            ("registry.tag.moved", "v2"),
            ("registry.tag.deleted", "v2"),
            ("registry.image.deleted", None),
            ("registry.tag.deleted", "v1"),
            ("registry.image.pushed", "v1"),
            ("registry.tag.moved", "v1"),
            ("registry.repository.created", None),
            ("registry.repository.deleted", None),
        ]
        of_images = [payload["data"] for _, payload in events if payload["data"]["digest"]]
        assert {each["media_type"] for each in of_images} == {KIND}
        assert len(of_images) == 9
        payload = events[0][1]
        data = payload["data"]
        assert payload["topics"] == [topic]
        assert data["repository"]["name"] == "r"
        assert data["uri"] == f"{HOST}/acme/r"
        assert (data["digest"], data["media_type"]) == (digest, KIND)
        assert data["principal"].endswith(":service-account/ci")
        assert data["occurred_at"].endswith("Z")


async def test_what_no_rule_asks_for_is_not_written(install: Install, database_url: str) -> None:
    async with open_shop(install) as shop:
        await shop.push("one", "v1")
        assert told(database_url) == []
        await add_rule(shop, "registry.tag.deleted", "registry.image.*", prefix="other/")
        await shop.push("two", "v1")
        assert told(database_url) == []
        await add_rule(shop, "registry.image.deleted", prefix="r", topic="deletions")
        await shop.delete(await shop.push("three", "v3"))
        ((kind, payload),) = told(database_url)
        assert kind == "registry.image.deleted"
        assert [topic.rpartition("/")[2] for topic in payload["topics"]] == ["deletions"]


async def test_a_topic_is_told_once_however_many_rules_ask(
    install: Install, database_url: str
) -> None:
    async with open_shop(install) as shop:
        first = await add_rule(shop, "registry.image.pushed")
        await add_rule(shop, "registry.image.*", prefix="r")
        second = await add_rule(shop, "registry.*", topic="all")
        await shop.push("one")
        ((_, payload),) = told(database_url)
        assert payload["topics"] == sorted([first, second])


async def test_a_change_that_fails_tells_nothing(install: Install, database_url: str) -> None:
    async with open_shop(install) as shop:
        await shop.client.patch(shop.path, json={"tag_mutability": "immutable"})
        await shop.push("one", "v1")
        await add_rule(shop, "registry.*")
        body = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": KIND,
                "config": json.loads((await shop.pull("v1")).content)["config"],
                "layers": [],
            }
        ).encode()
        # The image is stored, then its tag is refused: all of it is undone.
        assert (await put(shop, "v1", body)).status_code == 409
        assert (await shop.docker.delete("/v2/acme/r/manifests/v1")).status_code == 405
        assert (await shop.docker.delete("/v2/acme/r/manifests/v2")).status_code == 404
        assert told(database_url) == []

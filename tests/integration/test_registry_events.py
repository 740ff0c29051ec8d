"""Events of the registry on both databases: in the outbox if and only if a rule asks for them."""

from __future__ import annotations

import json
from typing import Any

from registry.oci.media_types import OCI_MANIFEST
from tests.databases import on_both_databases
from tests.integration.pushing import PATH, create
from tests.integration.restoration_world import UndoWorld
from tests.tenants import HOST
from tests.topics import add_topics

pytestmark = on_both_databases


async def add_rule(undo: UndoWorld, *types: str, prefix: str = "", topic: str = "builds") -> str:
    """Ask for events and return the topic's CRN."""
    body = {
        "topic": f"crn:notifications:local:acme:topic/{topic}",
        "event_types": list(types),
        "repository_prefix": prefix,
    }
    await add_topics(undo.install.database, "acme", topic)
    answer = await undo.control.post("/v1/event-rules", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["event_rule"]["topic"]["crn"])


def told(undo: UndoWorld) -> list[tuple[str, dict[str, Any]]]:
    """Return type and payload of each event in the outbox, in order."""
    rows = undo.query("SELECT type, payload FROM outbox ORDER BY sequence")
    return [(row[0], json.loads(row[1])) for row in rows]


async def test_every_kind_of_change_is_told_once(undo: UndoWorld) -> None:
    topic = await add_rule(undo, "registry.*")
    digest = await undo.image(b"one", tag="v1")
    body = (await undo.pull("v1")).content
    assert (await undo.put("v1", body)).status_code == 201  # changes nothing
    assert (await undo.put("v2", body)).status_code == 201
    await undo.delete("v2")
    await undo.delete(digest)
    await undo.restore(digest)
    other = await create(undo.control, "other")
    await undo.control.delete(f"{PATH}/{other['id']}")

    events = told(undo)
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
    assert {each["media_type"] for each in of_images} == {OCI_MANIFEST}
    assert len(of_images) == 9
    payload = events[0][1]
    data = payload["data"]
    assert payload["topics"] == [topic]
    assert data["repository"]["name"] == "app"
    assert data["uri"] == f"{HOST}/acme/app"
    assert (data["digest"], data["media_type"]) == (digest, OCI_MANIFEST)
    assert data["principal"].endswith(":service-account/ci")
    assert data["occurred_at"].endswith("Z")


async def test_what_no_rule_asks_for_is_not_written(undo: UndoWorld) -> None:
    await undo.image(b"one", tag="v1")
    assert told(undo) == []
    await add_rule(undo, "registry.tag.deleted", "registry.image.*", prefix="other/")
    await undo.image(b"two", tag="v1")
    assert told(undo) == []
    await add_rule(undo, "registry.image.deleted", prefix="app", topic="deletions")
    await undo.delete(await undo.image(b"three", tag="v3"))
    ((kind, payload),) = told(undo)
    assert kind == "registry.image.deleted"
    assert [topic.rpartition("/")[2] for topic in payload["topics"]] == ["deletions"]


async def test_a_topic_is_told_once_however_many_rules_ask(undo: UndoWorld) -> None:
    first = await add_rule(undo, "registry.image.pushed")
    await add_rule(undo, "registry.image.*", prefix="app")
    second = await add_rule(undo, "registry.*", topic="all")
    await undo.image(b"one")
    ((_, payload),) = told(undo)
    assert payload["topics"] == sorted([first, second])


async def test_a_change_that_fails_tells_nothing(undo: UndoWorld) -> None:
    await undo.control.patch(undo.path, json={"tag_mutability": "immutable"})
    await undo.image(b"one", tag="v1")
    await add_rule(undo, "registry.*")
    body = json.dumps((await undo.pull("v1")).json() | {"layers": []}).encode()
    # The image is stored, then its tag is refused: all of it is undone.
    assert (await undo.put("v1", body)).status_code == 409
    for tag, status in (("v1", 405), ("v2", 404)):
        answer = await undo.docker.delete(f"/v2/{undo.name}/manifests/{tag}")
        assert answer.status_code == status
    assert told(undo) == []

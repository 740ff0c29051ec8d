"""Events of buckets, objects, queues, topics and keys: from a change to a queue that gets them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest

from cloudcore.db.base import Connection
from cloudcore.events import Events
from cloudcore.kms.chores import delete_due_keys
from cloudcore.notifications.family import NOTIFICATIONS
from cloudcore.resource_names import Crn
from cloudcore.storage import objects
from cloudcore.storage.buckets import find_bucket
from registry.services.events import matching_topics
from tests import described
from tests.integration.s3_client import HOST, S3Client, client_of, completion, deletion
from tests.integration.served_world import open_served
from tests.jobs import SWIFT, run_due

BODY = b"some bytes"
ALL = ("storage.*", "queue.*", "notifications.*", "kms.*")


@dataclass
class World:
    """An install whose events come to a queue."""

    s3: S3Client
    queue_id: str = ""

    async def ask(self, method: str, path: str, body: object = None, **headers: str) -> Any:  # noqa: ANN401
        """Send a request to `/v1`; return its document."""
        served = self.s3.served
        answer = await served.ask(method, path, body, token=served.fresh_token(), headers=headers)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    async def make(self, path: str, **fields: object) -> dict[str, Any]:
        """Create something; return its record."""
        (record,) = [v for v in (await self.ask("POST", path, fields)).values() if "id" in v]
        return dict(record)

    async def listen(self, *types: str) -> None:
        """Send events of these types to a queue."""
        self.queue_id = (await self.make("/v1/queues", name="listener"))["id"]
        topic = await self.make("/v1/topics", name="told")
        path = f"/v1/topics/{topic['id']}/subscriptions"
        await self.make(path, protocol="queue", endpoint=self.queue_id)
        await self.make("/v1/event-rules", topic=topic["crn"], event_types=list(types))

    async def told(self) -> list[dict[str, Any]]:
        """Deliver what is to be told; return the events, in the order of their ids."""
        served = self.s3.served
        kinds = list(NOTIFICATIONS.runtime.job_kinds(served.notifications))
        await run_due(served.database, kinds, served.clock, SWIFT)
        path = f"/v1/queues/{self.queue_id}/messages"
        found: list[dict[str, Any]] = []
        while leased := (await self.ask("POST", f"{path}/lease", {"max_messages": 10}))["messages"]:
            found += [json.loads(json.loads(each["body"])["message"]) for each in leased]
            ids = [each["lease_id"] for each in leased]
            await self.ask("POST", f"{path}/acknowledge", {"lease_ids": ids})
        return sorted(found, key=lambda event: str(event["id"]))


@pytest.fixture
async def world(tmp_path: Path, metadata_url: str) -> AsyncIterator[World]:
    async with open_served(tmp_path / "data", metadata_url, s3_host=HOST) as served:
        yield World(client_of(served, served.acme))


def of(record: dict[str, Any]) -> dict[str, Any]:
    """Return how events refer to a record."""
    return {name: record[name] for name in ("id", "crn", "name")}


def keys_of(events: Iterable[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["type"].removeprefix("storage."), event["data"].get("key")) for event in events]


async def test_each_change_of_a_bucket_and_its_objects_is_told_once(world: World) -> None:
    s3 = world.s3
    await world.listen("storage.*")
    await s3.done("PUT", "/one")
    await s3.done("PUT", "/one/a%25b%01%C3%A9", BODY, content_type="text/plain")
    await s3.done("PUT", "/one/copy", x_amz_copy_source="/one/a%25b%01%C3%A9")
    await world.ask("PUT", "/v1/buckets/one/objects/v1", BODY)
    path = await s3.begin("/one/parts")
    etag = (await s3.ask("PUT", f"{path}&partNumber=1", BODY)).headers["etag"]
    for _ in range(2):  # the second answers the same, and changes nothing
        await s3.done("POST", path, completion((1, etag, "")))
    await s3.done("PUT", "/one/v1?tagging", b"<Tagging><TagSet></TagSet></Tagging>")
    await world.ask("DELETE", "/v1/buckets/one/objects/v1")
    await s3.done("DELETE", "/one/copy")
    await s3.done("DELETE", "/one/copy")
    await s3.done("POST", "/one?delete", deletion("parts", "none", "parts"))
    await s3.done("DELETE", "/one/a%25b%01%C3%A9")
    await s3.done("DELETE", "/one")
    two = await world.make("/v1/buckets", name="two")
    await world.ask("DELETE", "/v1/buckets/two")

    told = await world.told()
    odd = "a%b\x01é"
    assert keys_of(told) == [
        ("bucket.created", None),
        ("object.created", odd),
        ("object.created", "copy"),
        ("object.created", "v1"),
        ("object.created", "parts"),
        ("object.deleted", "v1"),
        ("object.deleted", "copy"),
        ("object.deleted", "parts"),
        ("object.deleted", odd),
        ("bucket.deleted", None),
        ("bucket.created", None),
        ("bucket.deleted", None),
    ]
    account, one = s3.served.acme.account_id, told[0]["data"]["bucket"]["id"]
    crn = f"crn:storage:local:{account}:bucket/one"
    principal = f"crn:iam::{account}:service-account/program"
    source = {"crn": principal, "name": "program", "session_name": None}
    by = {"principal": principal, "source": source}
    first, other = {"id": one, "crn": crn, "name": "one"}, of(two)
    assert [
        {name: each["data"][name] for name in ("bucket", "principal", "source")} for each in told
    ] == [*[{"bucket": first, **by}] * 10, *[{"bucket": other, **by}] * 2]
    assert told[1]["data"] == {
        "bucket": first,
        "crn": f"{crn}/a%25b%01%C3%A9",
        "key": odd,
        "size": len(BODY),
        "etag": md5(BODY).hexdigest(),
        "content_type": "text/plain",
        **by,
    }


async def test_what_fails_changes_nothing_or_is_not_asked_for_is_not_told(world: World) -> None:
    s3, database = world.s3, world.s3.served.database
    await s3.done("PUT", "/one")
    database.noted.clear()
    await s3.done("PUT", "/one/key", BODY)
    statements = [each.statement.sqlite for each in database.noted]
    assert len([each for each in statements if "event_rules" in each]) == 1
    assert not [each for each in statements if "INTO outbox" in each or "INTO jobs" in each]

    await world.listen(*ALL)
    assert await s3.code("PUT", "/one/key", BODY, if_none_match="*") == "PreconditionFailed"
    assert await s3.code("DELETE", "/one/key", if_match='"other"') == "PreconditionFailed"
    assert await s3.code("DELETE", "/one") == "BucketNotEmpty"
    assert await s3.code("PUT", "/one") == "BucketAlreadyOwnedByYou"
    bucket = await database.read(find_bucket, s3.served.acme.account_id, "local", "one")

    def fail(tx: Connection) -> None:
        assert objects.delete_object(tx, bucket, "key", 1, Events(matching_topics)) is not None
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await database.write(fail)
    assert await world.told() == []


async def test_changes_of_queues_topics_and_keys_are_told_once(world: World) -> None:
    await world.listen(*ALL)
    retried = {"Idempotency-Key": "one"}
    made = [await world.ask("POST", "/v1/queues", {"name": "q"}, **retried) for _ in range(2)]
    assert made[0] == made[1]
    queue = made[0]["queue"]
    await world.ask("POST", f"/v1/queues/{queue['id']}/messages", {"body": "hello"})
    await world.ask("POST", f"/v1/queues/{queue['id']}/purge")
    topic = await world.make("/v1/topics", name="t")
    path = f"/v1/topics/{topic['id']}/subscriptions"
    endpoint = {"protocol": "queue", "endpoint": queue["id"]}
    for _ in range(2):
        subscription = await world.make(path, **endpoint)
    await world.ask("DELETE", f"{path}/{subscription['id']}")
    await world.ask("DELETE", f"/v1/topics/{topic['id']}")
    await world.ask("DELETE", f"/v1/queues/{queue['id']}")
    key = await world.make("/v1/keys", name="k")
    for act in ("rotate", "enable", "disable", "disable", "enable"):
        world.s3.served.clock.advance(1)
        await world.ask("POST", f"/v1/keys/{key['id']}/{act}")
    await world.ask("DELETE", f"/v1/keys/{key['id']}")
    await world.ask("POST", f"/v1/keys/{key['id']}/cancel-deletion")
    await world.ask("DELETE", f"/v1/keys/{key['id']}?pending_window_days=7")
    told = await world.told()
    world.s3.served.clock.advance(7 * 24 * 3600)
    await delete_due_keys(world.s3.served.kms)
    (erased,) = await world.told()

    assert [(event["type"], *list(event["data"].values())[:-2]) for event in [*told, erased]] == [
        ("queue.queue.created", of(queue)),
        ("queue.queue.purged", of(queue)),
        ("notifications.topic.created", of(topic)),
        ("notifications.subscription.created", of(topic), {"id": subscription["id"]}),
        ("notifications.subscription.deleted", of(topic), {"id": subscription["id"]}),
        ("notifications.topic.deleted", of(topic)),
        ("queue.queue.deleted", of(queue)),
        ("kms.key.created", of(key)),
        ("kms.key.rotated", of(key)),
        ("kms.key.disabled", of(key)),
        ("kms.key.enabled", of(key)),
        ("kms.key.deletion_scheduled", of(key)),
        ("kms.key.deletion_cancelled", of(key)),
        ("kms.key.deletion_scheduled", of(key)),
        ("kms.key.deleted", of(key)),
    ]
    assert erased["data"]["principal"] is None


async def test_each_change_of_a_described_kind_is_told_once(world: World) -> None:
    kinds = [each for each in described.RESOURCES if {"create", "delete"} <= {*each.methods}]
    await world.listen(*{f"{each.service}.*" for each in kinds})
    expected = []
    for kind in kinds:
        made = await world.make(kind.path, **kind.sampled(described.NEW))
        path = f"{kind.path}/{made['id']}"
        world.s3.served.clock.advance(1)
        change = described.change_of(kind)
        changed = await world.ask("PATCH", path, change)
        for nothing in ({}, change):
            world.s3.served.clock.advance(1)
            assert await world.ask("PATCH", path, nothing) == changed
        await world.ask("DELETE", path)
        about = {"id": made["id"], "crn": made["crn"], "name": Crn.parse(made["crn"]).name}
        expected += [
            (kind.event_types_by_action[kind.action(verb)], {kind.one: about})
            for verb in kind.methods_with_events
        ]
    told = [(each["type"], each["data"]) for each in await world.told()]
    for _, data in told:
        del data["principal"], data["source"]
    assert told == expected

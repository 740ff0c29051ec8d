"""``/v1/queues``: queues and their messages as a client sees them."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from cloudcore.queue.long_polling import Consumers
from cloudcore.queue.queue import MAX_MESSAGE_BYTES
from tests.integration.served_world import Served
from tests.live_signed_in import serving
from tests.tenants import allow


async def ask(served: Served, method: str, path: str, body: object = None) -> httpx.Response:
    return await served.ask(method, f"/v1/queues{path}", body, token=served.acme.program_token)


async def done(served: Served, method: str, path: str, body: object = None) -> dict[str, Any]:
    answer = await ask(served, method, path, body)
    assert answer.is_success, (method, path, answer.text)
    return dict(answer.json())


async def refused(
    served: Served, method: str, path: str, body: object, status: int = 400
) -> dict[str, Any]:
    answer = await ask(served, method, path, body)
    assert answer.status_code == status, answer.text
    return dict(answer.json()["error"].get("params", {}))


async def make(served: Served, name: str, **fields: object) -> dict[str, Any]:
    return dict((await done(served, "POST", "", {"name": name, **fields}))["queue"])


async def lease(served: Served, path: str, **fields: object) -> list[dict[str, Any]]:
    return list((await done(served, "POST", f"{path}/messages/lease", fields))["messages"])


async def send(served: Served, path: str, *bodies: str) -> None:
    """Send messages in one request."""
    sent = {"messages": [{"body": each} for each in bodies]}
    await done(served, "POST", f"{path}/messages", sent)


@pytest.fixture
async def path(served: Served) -> str:
    """Return the path of a queue, after ``/v1/queues``."""
    return f"/{(await make(served, 'jobs'))['id']}"


async def depth(served: Served, path: str) -> dict[str, Any]:
    """Return how many messages a queue has, and the age of the oldest."""
    return dict((await done(served, "GET", path))["queue"]["depth"])


async def test_names_are_an_accounts_own(served: Served) -> None:
    first = await make(served, "app")
    assert (await refused(served, "POST", "", {"name": "app"}, 409)) == {"name": "app"}
    theirs = await served.make("/v1/queues", {"name": "app"}, token=served.globex.program_token)
    assert theirs["id"] != first["id"]
    for name in ("", "App", "-a", "a" * 64, first["id"]):
        assert (await refused(served, "POST", "", {"name": name}))["field"] == "name"


async def test_dead_letters_go_to_another_queue_that_there_is(served: Served, path: str) -> None:
    for reference, status, reason in (
        ("nothing", 404, "queue_not_found"),
        ("crn:queue:local:acme:queue/nothing", 404, "queue_not_found"),
        ("jobs", 400, "same_queue"),
    ):
        body = {"redrive_policy": {"dead_letter_queue": reference, "max_leases": 1}}
        params = await refused(served, "PATCH", path, body, status)
        assert params["reason"] == reason, reference


async def acknowledge_late(served: Served, path: str, lease_ids: list[str]) -> None:
    """Check that no lease acknowledges: the first one's message is gone, the others are over."""
    late = await done(served, "POST", f"{path}/messages/acknowledge", {"lease_ids": lease_ids})
    assert late["acknowledged"] == []
    codes = [each["code"] for each in late["failures"]]
    assert codes == ["NOT_FOUND", "LEASE_EXPIRED", "LEASE_EXPIRED"]


async def test_messages_are_sent_leased_and_acknowledged(served: Served, path: str) -> None:
    attributes = {"kind": "event"}
    sent = await done(
        served, "POST", f"{path}/messages", {"body": "a\u2028", "attributes": attributes}
    )
    batch = {"messages": [{"body": "b"}, {"body": "c", "delay_seconds": 9}, {"body": "d"}]}
    more = await done(served, "POST", f"{path}/messages", batch)
    assert [list(each) for each in more["messages"]] == [["id", "sent_at"]] * 3
    served.clock.advance(7)
    leased = await lease(served, path, max_messages=5, lease_seconds=60)
    assert [each["body"] for each in leased] == ["a\u2028", "b", "d"]
    assert [each["attributes"] for each in leased] == [attributes, {}, {}]
    assert leased[0]["id"] == sent["messages"][0]["id"]
    assert {each["lease_count"] for each in leased} == {1}
    counts = {"visible": 0, "leased": 3, "delayed": 1}
    assert await depth(served, path) == {**counts, "oldest_age_seconds": 7}
    ids = [each["lease_id"] for each in leased]
    first = await done(
        served, "POST", f"{path}/messages/acknowledge", {"lease_ids": [ids[0], "no"]}
    )
    assert first["acknowledged"] == [ids[0]]
    assert [(each["lease_id"], each["code"]) for each in first["failures"]] == [("no", "NOT_FOUND")]
    served.clock.advance(61)
    await acknowledge_late(served, path, ids)
    back = await lease(served, path, max_messages=9)
    await acknowledge_late(served, path, ids)
    assert [(each["body"], each["lease_count"]) for each in back] == [("b", 2), ("c", 1), ("d", 2)]
    held = {"lease_ids": [each["lease_id"] for each in back], "lease_seconds": 0}
    assert len((await done(served, "POST", f"{path}/messages/extend", held))["extended"]) == 3
    await done(served, "POST", f"{path}/purge")
    assert await lease(served, path) == []
    empty = {"visible": 0, "leased": 0, "delayed": 0}
    assert await depth(served, path) == {**empty, "oldest_age_seconds": None}


REFUSED: Final[tuple[tuple[object, str], ...]] = (
    ({}, "body"),
    ({"body": ""}, "body"),
    ({"body": "x" * (MAX_MESSAGE_BYTES + 1)}, "body"),
    ({"body": "é" * (MAX_MESSAGE_BYTES // 2), "attributes": {"a": "b"}}, "body"),
    ({"messages": [{"body": "x"}, {"body": "x" * (MAX_MESSAGE_BYTES + 1)}]}, "messages[1].body"),
    ({"body": "x", "attributes": {f"a{n}": "" for n in range(21)}}, "attributes"),
    ({"body": "x", "attributes": {"a b": ""}}, "attributes"),
    ({"body": "x", "delay_seconds": 901}, "delay_seconds"),
    ({"body": "x", "messages": [{"body": "x"}]}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": [{"body": "x"}] * 101}, "messages"),
)


async def test_a_message_that_cannot_be_taken_is_400(served: Served, path: str) -> None:
    for body, field in REFUSED:
        assert (await refused(served, "POST", f"{path}/messages", body))["field"] == field
    assert (await done(served, "GET", path))["queue"]["depth"]["visible"] == 0
    # The largest is taken, and what is leased at once stays small.
    largest = "x" * MAX_MESSAGE_BYTES
    for _ in range(17):
        await send(served, path, largest)
    leased = await lease(served, path, max_messages=100)
    assert [each["body"] == largest for each in leased] == [True] * 16


async def test_a_message_is_leased_behind_hundreds_that_are_over(served: Served, path: str) -> None:
    for _ in range(3):
        await send(served, path, *["over"] * 100)
        await lease(served, path, max_messages=100)
    await done(served, "POST", f"{path}/purge")
    await done(served, "POST", f"{path}/messages", {"body": "new", "delay_seconds": 60})
    served.clock.advance(60)
    assert [each["body"] for each in await lease(served, path)] == ["new"]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> asyncio.Semaphore:
    """Return what is released each time a consumer has found nothing and begins to wait."""
    begun, wait = asyncio.Semaphore(0), Consumers._changed

    async def noting(*given: Any) -> None:  # noqa: ANN401 - as the method has them
        begun.release()
        await wait(*given)

    monkeypatch.setattr(Consumers, "_changed", noting)
    return begun


async def test_a_wait_ends_with_a_send_and_reads_nothing_meanwhile(
    served: Served, path: str, waits: asyncio.Semaphore
) -> None:
    queue = served.acme.ids["/v1/queues/{}"]
    waiting = asyncio.create_task(lease(served, path, wait_seconds=20, max_messages=9))
    await waits.acquire()
    await until_quiet(served)
    before = len(served.database.noted)
    await asyncio.sleep(0.5)
    assert len(served.database.noted) == before, "a wait asks the database only after a commit"
    await send(served, f"/{queue}", "of another queue")
    assert not waiting.done()
    began = asyncio.get_running_loop().time()
    await send(served, path, "a", "b")
    assert [each["body"] for each in await waiting] == ["a", "b"]
    assert asyncio.get_running_loop().time() - began < 15, "it waited for its end"


async def test_a_wait_ends_empty_or_with_the_queue_and_each_message_wakes_one(
    served: Served, path: str, waits: asyncio.Semaphore
) -> None:
    began = asyncio.get_running_loop().time()
    assert await lease(served, path, wait_seconds=1) == []
    assert asyncio.get_running_loop().time() - began >= 1
    await waits.acquire()
    waiting = [asyncio.create_task(lease(served, path, wait_seconds=20)) for _ in range(5)]
    for _ in waiting:
        await waits.acquire()
    for body in "abcde":
        await send(served, path, body)
    found = [each[0]["body"] for each in await asyncio.gather(*waiting)]
    assert sorted(found) == list("abcde")
    last = asyncio.create_task(ask(served, "POST", f"{path}/messages/lease", {"wait_seconds": 20}))
    await waits.acquire()
    assert (await ask(served, "DELETE", path)).status_code == 204
    assert (await last).status_code == 404


@pytest.mark.parametrize("taken", ["policy", "service account", "token"])
async def test_a_right_that_is_taken_during_a_wait_gets_no_message(
    served: Served, path: str, waits: asyncio.Semaphore, taken: str
) -> None:
    crn, own = (await done(served, "GET", path))["queue"]["crn"], served.acme.program_token
    token = await served.token_that_may(allow("queue:LeaseMessages", on=crn))

    async def named(kind: str) -> str:
        found = (await served.ask("GET", f"/v1/{kind}", token=own)).json()
        (made,) = (each for each in found[kind.replace("-", "_")] if each["name"] == "limited")
        return f"/v1/{kind}/{made['id']}"

    policy, program = await named("policies"), await named("service-accounts")
    at = f"/v1/queues{path}/messages/lease"
    waiting = asyncio.create_task(served.ask("POST", at, {"wait_seconds": 20}, token=token))
    await waits.acquire()
    if taken == "policy":
        denial = {"effect": "deny", "actions": ["queue:*"], "resources": [crn]}
        document = {"document": {"version": "1", "statements": [denial]}}
        answer = await served.ask("PATCH", policy, document, token=own)
    elif taken == "service account":
        answer = await served.ask("PATCH", program, {"status": "suspended"}, token=own)
    else:
        answer = await served.submit("/v1/oauth/revoke", f"token={token}")
    assert answer.is_success, answer.text
    await send(served, path, "a")
    assert (await waiting).status_code == (403 if taken == "policy" else 401)
    leased = await lease(served, path)
    assert [(each["body"], each["lease_count"]) for each in leased] == [("a", 1)]


async def until_quiet(served: Served) -> None:
    """Return when no statement has run for a while."""
    count = -1
    for _ in range(100):
        if count == (count := len(served.database.noted)):
            return
        await asyncio.sleep(0.3)
    raise AssertionError("statements run all the time")


def test_a_consumer_that_has_left_gets_no_message_nor_holds_the_server(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as signed_in:
        made = signed_in.call(signed_in.acme, "POST", "/v1/queues", {"name": "jobs"})
        at = f"/v1/queues/{made['queue']['id']}/messages"
        body = b'{"wait_seconds": 20}'
        head = (
            f"POST {at}/lease HTTP/1.1\r\nHost: {signed_in.host}\r\n"
            f"Authorization: Bearer {signed_in.acme.access_token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        host, port = signed_in.host.split(":")

        def begin(consumer: socket.socket) -> None:
            """Begin a lease, which waits."""
            consumer.sendall(head.encode() + body)
            consumer.settimeout(0.3)
            with pytest.raises(TimeoutError):
                consumer.recv(1)

        for _ in range(3):
            with socket.create_connection((host, int(port))) as consumer:
                begin(consumer)
        signed_in.call(signed_in.acme, "POST", at, {"body": "a"})
        (leased,) = signed_in.call(signed_in.acme, "POST", f"{at}/lease", {"wait_seconds": 5})[
            "messages"
        ]
        assert (leased["body"], leased["lease_count"]) == ("a", 1)

        with socket.create_connection((host, int(port))) as consumer:
            begin(consumer)
            signed_in.registry.process.send_signal(signal.SIGTERM)
            consumer.settimeout(10)
            answer = consumer.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200")
            assert answer.endswith(b'{"messages":[]}')

"""Bindings to keys on ``/v1``, their history, and what a key protects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import httpx
import pytest

from cloudcore.kms.chores import delete_due_keys
from registry.metadata import key_usage
from registry.metadata.encryption_bindings import count_bindings, effective_key
from tests.databases import on_both_databases
from tests.integration.pushing import Pusher, make_world
from tests.integration.served_world import URL, Served
from tests.tenants import allow, bearer, open_install

DAY: Final = 24 * 3600

Ask = Callable[..., Awaitable[httpx.Response]]


def asking(served: Served, token: str = "") -> Ask:
    """Return what asks as acme's program."""
    return partial(served.ask, token=token or served.acme.program_token)


async def record(answer: Awaitable[httpx.Response]) -> dict[str, Any]:
    """Return the only member of an answer that has succeeded."""
    found = await answer
    assert found.is_success, found.text
    (value,) = found.json().values()
    return dict(value)


async def make_keys(served: Served, *names: str) -> list[dict[str, Any]]:
    token = served.acme.program_token
    return [await served.make("/v1/keys", {"name": name}, token=token) for name in names]


async def make_repository(served: Served, name: str, **fields: str) -> dict[str, Any]:
    body = {"name": name, **fields}
    return dict(await served.make("/v1/repositories", body, token=served.acme.program_token))


async def disable(served: Served, key: dict[str, Any]) -> None:
    await record(asking(served)("POST", f"/v1/keys/{key['id']}/disable"))


def refused(answer: httpx.Response, status: int, reason: str | None = None) -> None:
    assert answer.status_code == status, answer.text
    if reason is not None:
        assert answer.json()["error"]["params"]["reason"] == reason


def reference(key: dict[str, Any]) -> dict[str, Any]:
    return {name: key[name] for name in ("id", "crn", "name")}


async def test_a_repository_is_sealed_under_its_own_key_else_the_default_else_the_platforms(
    served: Served,
) -> None:
    ask = asking(served)
    assert (await ask("DELETE", "/v1/encryption-binding")).status_code == 204
    team, own = await make_keys(served, "team", "own")
    repository = await make_repository(served, "web")
    path = f"/v1/repositories/{repository['id']}"

    async def shown() -> tuple[str, str]:
        """Return what all places say of the repository."""
        binding = await record(ask("GET", f"{path}/encryption-binding"))
        one = (await record(ask("GET", path)))["encryption"]
        listed = (await ask("GET", "/v1/repositories?name=web")).json()["repositories"][0]
        assert listed["encryption"] == one
        assert (one["source"], one["kms_key"]) == (binding["source"], binding["kms_key"])
        ids = served.acme.account_id, repository["id"]
        effective = await served.database.read(effective_key, *ids)
        assert (effective.source, effective.kms_key_id) == (one["source"], one["kms_key"]["id"])
        assert (binding["repository"] is None) == (binding["source"] != "repository")
        return one["source"], one["kms_key"]["name"]

    assert repository["encryption"]["has_plain_blobs"] is False
    assert await shown() == ("platform", "platform")
    default = await record(ask("GET", "/v1/encryption-binding"))
    assert (default["id"], default["source"], default["status"]) == (None, "platform", "active")

    bound = await record(ask("PUT", "/v1/encryption-binding", {"kms_key": "team"}))
    assert bound["kms_key"] == reference(team)
    assert bound == await record(ask("GET", "/v1/encryption-binding"))
    assert await shown() == ("account", "team")

    for value in (own["id"], own["crn"]):
        bound = await record(ask("PUT", f"{path}/encryption-binding", {"kms_key": value}))
        assert bound["repository"]["name"] == "web"
        assert bound["kms_key"] == reference(own)
        assert await shown() == ("repository", "own")

    assert (await ask("DELETE", f"{path}/encryption-binding")).status_code == 204
    refused(await ask("DELETE", f"{path}/encryption-binding"), 404)
    assert await shown() == ("account", "team")
    assert (await ask("DELETE", "/v1/encryption-binding")).status_code == 204
    refused(await ask("DELETE", "/v1/encryption-binding"), 404)
    assert await shown() == ("platform", "platform")


async def test_a_repository_is_created_with_a_key(served: Served) -> None:
    ask = asking(served)
    (key,) = await make_keys(served, "own")
    made = await make_repository(served, "web", kms_key="own")
    assert made["encryption"]["source"] == "repository"
    assert made["encryption"]["kms_key"] == reference(key)
    await disable(served, key)
    for name, status, reason in (("own", 400, "key_disabled"), ("none", 404, "key_not_found")):
        named = {"name": "x", "kms_key": name}
        refused(await ask("POST", "/v1/repositories", named), status, reason)
    assert (await ask("GET", "/v1/repositories?name=x")).json()["meta"]["total"] == 0


@on_both_databases
async def test_the_history_has_ended_bindings_and_deleted_keys(served: Served) -> None:
    ask = asking(served)
    first, _ = await make_keys(served, "first", "second")
    repository = await make_repository(served, "web")
    path = f"/v1/repositories/{repository['id']}/encryption-binding"
    for name in ("first", "second", "second", "first"):
        served.clock.advance(1)
        await record(ask("PUT", path, {"kms_key": name}))

    async def history() -> list[tuple[str, str | None]]:
        rows = (await ask("GET", f"{path}s")).json()["encryption_bindings"]
        assert [row["ended_at"] is None for row in rows] == [True] + [False] * (len(rows) - 1)
        return [(row["status"], row["kms_key"].get("name")) for row in rows]

    assert await history() == [("active", "first"), ("ended", "second"), ("ended", "first")]
    page = (await ask("GET", f"{path}s?limit=2")).json()
    rest = (await ask("GET", f"{path}s?limit=2&marker={page['meta']['marker']}")).json()
    rows = (await ask("GET", f"{path}s")).json()
    assert page["encryption_bindings"] + rest["encryption_bindings"] == rows["encryption_bindings"]
    assert (page["meta"]["total"], rest["meta"]["has_more"]) == (3, False)

    await disable(served, first)
    assert (await history())[0] == ("key_disabled", "first")
    await record(ask("DELETE", f"/v1/keys/{first['id']}?pending_window_days=7"))
    assert (await history())[0] == ("key_disabled", "first")
    served.clock.advance(8 * DAY)
    await delete_due_keys(served.kms)
    renewed = await served.program_token(served.acme.access_key_id, served.acme.secret)
    ask = asking(served, renewed)
    assert await history() == [("key_deleted", None), ("ended", "second"), ("ended", None)]
    current = await record(ask("GET", path))
    assert current["kms_key"] == {"id": first["id"]}
    shown = (await record(ask("GET", f"/v1/repositories/{repository['id']}")))["encryption"]
    assert (shown["source"], shown["kms_key"]["id"]) == ("repository", first["id"])
    refused(await ask("PUT", path, {"kms_key": first["id"]}), 404, "key_not_found")

    (default,) = (await ask("GET", "/v1/encryption-bindings")).json()["encryption_bindings"]
    assert (default["source"], default["kms_key"]["name"]) == ("account", "platform")


async def test_what_is_no_key_of_the_account_is_bound_to_neither(served: Served) -> None:
    """Some rows of the table of references; `test_kms_references` has all of it."""
    ask = asking(served)
    app, off = await make_keys(served, "app", "off")
    await disable(served, off)
    theirs = served.globex.ids["/v1/keys/{}"]
    rows: list[tuple[object, int, str | None]] = [
        *((wrong, 400, None) for wrong in ({}, {"kms_key": None}, {"kms_key": "x" * 513}))
    ]
    values = [
        ("App", 400, "malformed"),
        (theirs, 404, "key_not_found"),
        ("crn:kms:local:globex:key/key", 400, "foreign_account"),
        ("off", 400, "key_disabled"),
    ]
    rows += [({"kms_key": value}, status, reason) for value, status, reason in values]
    for scope in ("/v1", f"/v1/repositories/{served.acme.ids['/v1/repositories/{}']}"):
        path = f"{scope}/encryption-binding"
        for body, status, reason in rows:
            refused(await ask("PUT", path, body), status, reason)
        assert (await record(ask("GET", path)))["kms_key"]["name"] == "platform"
        for value in (app["id"].upper(), "app"):
            bound = await record(ask("PUT", path, {"kms_key": value}))
            assert bound["kms_key"] == reference(app)


async def test_binding_needs_the_use_of_the_key(served: Served) -> None:
    _, shut = await make_keys(served, "open", "shut")
    await disable(served, shut)
    uses = allow("kms:UseKey", on="crn:kms:*:*:key/open")
    theirs = asking(served, await served.token_that_may(allow("registry:*"), uses))
    repository = f"/v1/repositories/{served.acme.ids['/v1/repositories/{}']}"
    for path in ("/v1/encryption-binding", f"{repository}/encryption-binding"):
        # Refused before its state is told.
        refused(await theirs("PUT", path, {"kms_key": "shut"}), 403)
        refused(await theirs("PUT", path, {"kms_key": "platform"}), 403)
        assert (await theirs("PUT", path, {"kms_key": "open"})).status_code == 200
    refused(await theirs("POST", "/v1/repositories", {"name": "y", "kms_key": "platform"}), 403)
    made = await theirs("POST", "/v1/repositories", {"name": "y", "kms_key": "open"})
    assert made.status_code == 201


@on_both_databases
async def test_of_two_bindings_at_once_one_is_active(served: Served) -> None:
    ask = asking(served)
    await make_keys(served, "first", "second")
    repository = await make_repository(served, "web")
    for scope, repository_id in (("/v1", None), (f"/v1/repositories/{repository['id']}",) * 2):
        path = f"{scope}/encryption-binding"
        answers = await asyncio.gather(
            *(ask("PUT", path, {"kms_key": name}) for name in ("first", "second") * 3)
        )
        assert {answer.status_code for answer in answers} == {200}
        rows = (await ask("GET", f"{path}s")).json()["encryption_bindings"]
        assert [row["ended_at"] for row in rows].count(None) == 1
        count = await served.database.read(
            count_bindings, served.acme.account_id, repository_id and repository["id"]
        )
        assert count == len(rows)


async def test_a_change_is_in_the_audit_log_and_a_repetition_is_not(served: Served) -> None:
    ask = asking(served)
    (key,) = await make_keys(served, "own")
    repository = await make_repository(served, "web")
    path = f"/v1/repositories/{repository['id']}/encryption-binding"
    for _ in range(2):
        await record(ask("PUT", path, {"kms_key": "own"}))
    assert (await ask("DELETE", path)).status_code == 204
    events = (await ask("GET", "/v1/audit-events?limit=3")).json()["events"]
    assert [event["action"] for event in events] == [
        "registry:DeleteEncryptionBinding",
        "registry:PutEncryptionBinding",
        "registry:CreateRepository",
    ]
    put = events[1]
    assert put["details"]["kms_key_id"] == key["id"]
    assert [repository["crn"], key["crn"]] == put["resources"]


async def test_where_nothing_is_sealed_nothing_is_bound(sqlite_database: str) -> None:
    async with open_install(sqlite_database, sealing="off") as install:
        world = await make_world(install)
        await world.push_blob(b"plain")
        client = world.control
        assert (await world.record())["encryption"]["has_plain_blobs"] is True
        for scope in ("/v1", world.path):
            path, body = f"{scope}/encryption-binding", {"kms_key": "platform"}
            refused(await client.put(path, json=body), 400, "sealing_disabled")
            assert (await record(client.get(path)))["source"] == "platform"
            refused(await client.delete(path), 404)
        named = {"name": "x", "kms_key": "platform"}
        refused(await client.post("/v1/repositories", json=named), 400, "sealing_disabled")


async def push(served: Served, repository: str, *layers: bytes) -> str:
    """Push an image of these layers, and a config of two bytes; return its digest."""
    token = await served.bearer(served.acme, f"repository:acme/{repository}:*")
    transport = httpx.ASGITransport(served.app)
    async with httpx.AsyncClient(
        transport=transport, base_url=URL, headers=bearer(token)
    ) as docker:
        return await Pusher(docker, f"acme/{repository}").image(*layers)


async def usage(served: Served, key: dict[str, Any]) -> dict[str, Any]:
    return await record(asking(served)("GET", f"/v1/key-usage/{key['id']}"))


def counts(found: dict[str, Any]) -> tuple[int, int, int, int]:
    names = ("blob_count", "exclusive_blob_count", "exclusive_bytes", "image_count")
    return tuple(found[name] for name in names)


@on_both_databases
async def test_what_only_a_key_opens_is_told_from_what_another_opens_too(served: Served) -> None:
    ask, (one, two) = asking(served), await make_keys(served, "one", "two")
    assert counts(await usage(served, one)) == (0, 0, 0, 0)
    first = (await make_repository(served, "first", kms_key="one"))["id"]
    await make_repository(served, "second", kms_key="two")
    image = await push(served, "first", b"shared", b"alone!")
    await push(served, "second", b"shared")

    found = await usage(served, one)
    assert found["kms_key"]["name"] == "one"
    assert counts(found) == (3, 1, 6, 1)
    assert [(each["id"], each["name"]) for each in found["repositories"]] == [(first, "first")]
    images = [(each["repository"]["name"], each["digest"]) for each in found["images"]]
    assert images == [("first", image)]
    assert (found["repository_count"], found["is_account_default"]) == (1, False)
    assert found["is_partial"] is False
    assert counts(await usage(served, two)) == (2, 0, 0, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_usage, "MOST", 2)
        partial_usage = await usage(served, one)
    assert (partial_usage["is_partial"], partial_usage["blob_count"]) == (True, 2)

    await record(ask("POST", "/v1/buckets", {"name": "files", "kms_key": "one"}))
    assert (await ask("PUT", "/v1/buckets/files/objects/key", b"12345")).status_code == 200
    await record(ask("PUT", "/v1/encryption-binding", {"kms_key": "one"}))
    found = await usage(served, one)
    assert (found["bucket_count"], found["buckets"][0]["name"]) == (1, "files")
    assert (found["object_count"], found["object_bytes"]) == (1, 5)
    assert found["is_account_default"] is True


async def test_a_key_that_is_to_be_deleted_itself_does_not_save_a_blob(served: Served) -> None:
    one, two = await make_keys(served, "one", "two")
    for name in ("one", "two"):
        await make_repository(served, name, kms_key=name)
        await push(served, name, b"shared")
    await disable(served, two)
    assert counts(await usage(served, one)) == (2, 0, 0, 1)  # who enables it keeps the blobs
    await record(asking(served)("DELETE", f"/v1/keys/{two['id']}"))
    assert counts(await usage(served, one)) == (2, 2, 8, 1)
    assert counts(await usage(served, two)) == (2, 0, 0, 1)


async def test_only_who_may_read_all_repositories_is_told_of_an_own_key(served: Served) -> None:
    refused(await asking(served)("GET", "/v1/key-usage/platform"), 404)
    app = f"crn:registry:local:{served.acme.account_id}:repository/app"
    reader = await served.token_that_may(allow("registry:DescribeKeyUsage", on=app))
    path = f"/v1/key-usage/{served.acme.ids['/v1/keys/{}']}"
    refused(await served.ask("GET", path, token=reader), 403)

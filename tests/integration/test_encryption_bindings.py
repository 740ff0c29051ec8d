"""Bindings to keys on ``/v1``: an account's default, those of repositories, and their history."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx

from cloudcore.kms.chores import delete_due_keys
from registry.metadata.encryption_bindings import count_bindings, effective_key
from tests.databases import on_both_databases
from tests.integration.id_places import UNKNOWN
from tests.integration.served_world import Served, open_served
from tests.tenants import allow

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


async def make_key(served: Served, name: str, **fields: str) -> dict[str, Any]:
    return dict(
        await served.make("/v1/keys", {"name": name, **fields}, token=served.acme.program_token)
    )


async def make_repository(served: Served, name: str, **fields: str) -> dict[str, Any]:
    body = {"name": name, **fields}
    return dict(await served.make("/v1/repositories", body, token=served.acme.program_token))


def refused(answer: httpx.Response, status: int, reason: str | None = None) -> None:
    assert answer.status_code == status, answer.text
    if reason is not None:
        assert answer.json()["error"]["params"]["reason"] == reason


def reference(key: dict[str, Any]) -> dict[str, Any]:
    return {name: key[name] for name in ("id", "crn", "name")}


@on_both_databases
async def test_a_repository_is_sealed_under_its_own_key_else_the_default_else_the_platforms(
    served: Served,
) -> None:
    ask = asking(served)
    assert (await ask("DELETE", "/v1/encryption-binding")).status_code == 204
    team, own = await make_key(served, "team"), await make_key(served, "own")
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
    key = await make_key(served, "own")
    made = await make_repository(served, "web", kms_key="own")
    assert made["encryption"]["source"] == "repository"
    assert made["encryption"]["kms_key"] == reference(key)
    await record(ask("POST", f"/v1/keys/{key['id']}/disable"))
    refused(
        await ask("POST", "/v1/repositories", {"name": "x", "kms_key": "own"}), 400, "key_disabled"
    )
    refused(await ask("POST", "/v1/repositories", {"name": "x", "kms_key": "none"}), 404)
    assert (await ask("GET", "/v1/repositories?name=x")).json()["meta"]["total"] == 0


@on_both_databases
async def test_the_history_has_ended_bindings_and_deleted_keys(served: Served) -> None:
    ask = asking(served)
    first, _ = await make_key(served, "first"), await make_key(served, "second")
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

    key = f"/v1/keys/{first['id']}"
    await record(ask("POST", f"{key}/disable"))
    assert (await history())[0] == ("key_disabled", "first")
    await record(ask("DELETE", f"{key}?pending_window_days=7"))
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
    account = served.acme.account_id
    app = await make_key(served, "app")
    off = await make_key(served, "off")
    await record(ask("POST", f"/v1/keys/{off['id']}/disable"))
    theirs = served.globex.ids["/v1/keys/{}"]
    rows: list[tuple[object, int, str | None]] = [
        ({}, 400, None),
        ({"kms_key": None}, 400, None),
        ({"kms_key": "x" * 513}, 400, None),
    ]
    values = [
        ("App", 400, "malformed"),
        (UNKNOWN, 404, "key_not_found"),
        (theirs, 404, "key_not_found"),
        ("nobodys", 404, "key_not_found"),
        ("crn:kms:local:globex:key/key", 400, "foreign_account"),
        (f"crn:kms:local:{account}:key/nobodys", 404, "key_not_found"),
        ("off", 400, "key_disabled"),
    ]
    rows += [({"kms_key": value}, status, reason) for value, status, reason in values]
    for scope in ("/v1", f"/v1/repositories/{served.acme.ids['/v1/repositories/{}']}"):
        path = f"{scope}/encryption-binding"
        for body, status, reason in rows:
            refused(await ask("PUT", path, body), status, reason)
        assert (await record(ask("GET", path)))["kms_key"]["name"] == "platform"
        for value in (app["id"], app["id"].upper(), "app", "crn:kms:local:acme:key/app"):
            bound = await record(ask("PUT", path, {"kms_key": value}))
            assert bound["kms_key"] == reference(app)


async def test_binding_needs_the_use_of_the_key(served: Served) -> None:
    ask = asking(served)
    await make_key(served, "open")
    shut = await make_key(served, "shut")
    await record(ask("POST", f"/v1/keys/{shut['id']}/disable"))
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
    for name in ("first", "second"):
        await make_key(served, name)
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
    key = await make_key(served, "own")
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


async def test_where_nothing_is_sealed_nothing_is_bound(tmp_path: Path) -> None:
    async with open_served(tmp_path, sealing="off") as served:
        ask = asking(served)
        for scope in ("/v1", f"/v1/repositories/{served.acme.ids['/v1/repositories/{}']}"):
            path, body = f"{scope}/encryption-binding", {"kms_key": "platform"}
            refused(await ask("PUT", path, body), 400, "sealing_disabled")
            assert (await record(ask("GET", path)))["source"] == "platform"
            refused(await ask("DELETE", path), 404)
        named = {"name": "x", "kms_key": "platform"}
        refused(await ask("POST", "/v1/repositories", named), 400, "sealing_disabled")
        plain = await record(ask("GET", scope))
        assert plain["encryption"]["has_plain_blobs"] is True

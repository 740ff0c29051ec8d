"""Service accounts and their access keys."""

from __future__ import annotations

import re
from hashlib import sha256

import pytest
from sqlalchemy import select

from cloudcore.clock import MICROSECONDS
from cloudcore.db.statement import Statement
from cloudcore.identity.services import service_accounts
from cloudcore.identity.services.service_accounts import sealing_context
from cloudcore.identity.tables import access_keys
from cloudcore.wire import rfc3339
from tests.identity_world import World

SERVICE_ACCOUNTS = "/v1/service-accounts"
HOUR = 3600 * MICROSECONDS
KEPT = Statement(select(access_keys))


async def keys_path(world: World) -> str:
    """Make a service account; return where its access keys are."""
    owner = await world.make(SERVICE_ACCOUNTS, {"name": "ci"})
    return f"{SERVICE_ACCOUNTS}/{owner['id']}/access-keys"


async def test_a_service_account_lives(identity: World) -> None:
    made = await identity.make(SERVICE_ACCOUNTS, {"name": "ci", "description": "Builds."})
    assert made["crn"] == f"crn:iam::{identity.acme.account_id}:service-account/ci"
    assert (made["status"], made["description"]) == ("active", "Builds.")
    path = f"{SERVICE_ACCOUNTS}/{made['id']}"
    changed = await identity.ask("PATCH", path, {"status": "suspended"})
    assert changed.json()["service_account"]["status"] == "suspended"
    assert changed.json()["service_account"]["description"] == "Builds."
    for wrong in ({"status": "deleted"}, {"status": None}, {"name": "x"}, {"description": 1}):
        assert await identity.status("PATCH", path, wrong) == 400
    assert await identity.status("POST", SERVICE_ACCOUNTS, {"name": "ci"}) == 409
    assert [each["name"] for each in await identity.show(SERVICE_ACCOUNTS)] == ["admin", "ci"]
    await identity.make(f"{path}/access-keys", {})
    assert await identity.status("DELETE", path) == 204
    for gone in (path, f"{path}/access-keys"):
        assert await identity.status("GET", gone) == 404
    assert await identity.database.read(lambda tx: tx.rows(KEPT)) == []


async def test_the_secret_is_shown_once_and_kept_hashed_and_sealed(identity: World) -> None:
    owner = await identity.make(SERVICE_ACCOUNTS, {"name": "ci"})
    path = f"{SERVICE_ACCOUNTS}/{owner['id']}/access-keys"
    key = await identity.make(path, {})
    secret = key.pop("secret_access_key")
    assert re.fullmatch(r"AK[A-Z2-7]{18}", key["access_key_id"])
    assert re.fullmatch(r"[A-Za-z0-9_-]{40}", secret)
    assert key["service_account"] == {name: owner[name] for name in ("id", "crn", "name")}
    assert (key["status"], key["last_used_at"]) == ("active", None)
    assert await identity.show(f"{path}/{key['id']}") == key
    assert await identity.show(path) == [key]
    disabled = await identity.ask("PATCH", f"{path}/{key['id']}", {"status": "inactive"})
    assert disabled.json()["access_key"] == key | {"status": "inactive"}

    (row,) = await identity.database.read(lambda tx: tx.rows(KEPT))
    kept = dict(zip(access_keys.c.keys(), row, strict=True))
    assert secret not in repr(kept)
    assert kept["secret_sha256"] == sha256(secret.encode()).hexdigest()
    context = sealing_context(key["access_key_id"])
    assert identity.keyring.open(bytes(kept["secret_sealed"]), context) == secret.encode()


async def test_a_key_has_a_description_and_an_end(identity: World) -> None:
    path = await keys_path(identity)
    end = rfc3339(identity.now + HOUR)
    key = await identity.make(path, {"description": "build server", "expires_at": end})
    assert (key["description"], key["expires_at"]) == ("build server", end)
    one = f"{path}/{key['id']}"
    for wrong in (rfc3339(identity.now - HOUR), "2030-01-01T00:00:00", "9999-12-31T23:59:59-01:00"):
        for method, where in (("POST", path), ("PATCH", one)):
            answer = await identity.ask(method, where, {"expires_at": wrong})
            assert answer.json()["error"]["params"]["field"] == "expires_at"

    never = await identity.ask("PATCH", one, {"description": "", "expires_at": None})
    assert (never.json()["access_key"]["expires_at"], never.status_code) == (None, 200)
    await identity.ask("PATCH", one, {"expires_at": end})
    await identity.make(path, {})
    assert await identity.status("POST", path) == 409
    identity.now += HOUR
    await identity.make(path, {})  # an expired key does not count
    later = {"expires_at": rfc3339(identity.now + HOUR)}
    assert await identity.status("PATCH", one, later) == 409  # it would be the third
    kept = await identity.show(one)
    assert (kept["status"], kept["expires_at"]) == ("active", end)


async def test_two_keys_are_active_at_most(identity: World) -> None:
    path = await keys_path(identity)
    first, _ = await identity.make(path, {}), await identity.make(path, {})
    assert await identity.status("POST", path) == 409
    old = f"{path}/{first['id']}"
    assert await identity.status("PATCH", old, {"status": "inactive"}) == 200
    await identity.make(path, {})
    assert await identity.status("PATCH", old, {"status": "active"}) == 409
    assert await identity.status("PATCH", old, {"status": "expired"}) == 400
    for status in (204, 404):
        assert await identity.status("DELETE", old) == status
    assert len(await identity.show(path)) == 2


async def test_so_many_keys_are_kept(identity: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_accounts, "MAX_KEPT", 2)
    path = await keys_path(identity)
    for _ in range(2):
        made = await identity.make(path, {})
        await identity.ask("PATCH", f"{path}/{made['id']}", {"status": "inactive"})
    refused = await identity.ask("POST", path, {})
    assert (refused.status_code, refused.json()["error"]["message"]) == (
        409,
        "a service account keeps at most 2 access keys; delete one",
    )
    assert await identity.status("DELETE", f"{path}/{made['id']}") == 204
    await identity.make(path, {})

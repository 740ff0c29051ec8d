"""Service accounts and their access keys."""

from __future__ import annotations

import re
from hashlib import sha256

from sqlalchemy import select

from cloudcore.db.statement import Statement
from cloudcore.identity.services.access_keys import sealing_context
from cloudcore.identity.tables import access_keys
from tests.identity_world import World, play

SERVICE_ACCOUNTS = "/v1/service-accounts"
KEPT = Statement(select(access_keys))


def test_a_service_account_lives(database_url: str) -> None:
    async def scenario(world: World) -> None:
        made = await world.make(SERVICE_ACCOUNTS, {"name": "ci", "description": "Builds."})
        assert made["crn"] == f"crn:iam::{world.acme.account_id}:service-account/ci"
        assert (made["status"], made["description"]) == ("active", "Builds.")
        path = f"{SERVICE_ACCOUNTS}/{made['id']}"
        changed = await world.ask("PATCH", path, {"status": "suspended"})
        assert changed.json()["service_account"]["status"] == "suspended"
        assert changed.json()["service_account"]["description"] == "Builds."
        for wrong in ({"status": "deleted"}, {"status": None}, {"name": "x"}, {"description": 1}):
            assert (await world.ask("PATCH", path, wrong)).status_code == 400
        taken = await world.ask("POST", SERVICE_ACCOUNTS, {"name": "ci"})
        assert taken.status_code == 409
        listed = (await world.ask("GET", SERVICE_ACCOUNTS)).json()["service_accounts"]
        assert [each["name"] for each in listed] == ["admin", "ci"]
        await world.make(f"{path}/access-keys", {})
        assert (await world.ask("DELETE", path)).status_code == 204
        for gone in (path, f"{path}/access-keys"):
            assert (await world.ask("GET", gone)).status_code == 404
        assert await world.database.read(lambda tx: tx.rows(KEPT)) == []

    play(database_url, scenario)


def test_the_secret_is_shown_once_and_kept_hashed_and_sealed(database_url: str) -> None:
    async def scenario(world: World) -> None:
        owner = await world.make(SERVICE_ACCOUNTS, {"name": "ci"})
        path = f"{SERVICE_ACCOUNTS}/{owner['id']}/access-keys"
        answer = await world.ask("POST", path, key="retry")
        key = answer.json()["access_key"]
        secret = key.pop("secret_access_key")
        assert re.fullmatch(r"AK[A-Z2-7]{18}", key["access_key_id"])
        assert re.fullmatch(r"[A-Za-z0-9_-]{40}", secret)
        assert key["service_account"] == {
            "id": owner["id"],
            "crn": owner["crn"],
            "name": "ci",
        }
        assert key["status"] == "active"
        assert key["last_used_at"] is None
        assert (await world.ask("POST", path, key="retry")).content == answer.content

        assert (await world.ask("GET", f"{path}/{key['id']}")).json()["access_key"] == key
        assert (await world.ask("GET", path)).json()["access_keys"] == [key]
        disabled = await world.ask("PATCH", f"{path}/{key['id']}", {"status": "inactive"})
        assert disabled.json()["access_key"] == key | {"status": "inactive"}

        (row,) = await world.database.read(lambda tx: tx.rows(KEPT))
        kept = dict(zip(access_keys.c.keys(), row, strict=True))
        assert secret not in repr(kept)
        assert kept["secret_sha256"] == sha256(secret.encode()).hexdigest()
        context = sealing_context(key["access_key_id"])
        assert world.keyring.open(bytes(kept["secret_sealed"]), context) == secret.encode()

    play(database_url, scenario)


def test_two_keys_are_active_at_most(database_url: str) -> None:
    async def scenario(world: World) -> None:
        owner = await world.make(SERVICE_ACCOUNTS, {"name": "ci"})
        path = f"{SERVICE_ACCOUNTS}/{owner['id']}/access-keys"
        first, _ = await world.make(path, {}), await world.make(path, {})
        assert (await world.ask("POST", path)).status_code == 409
        old = f"{path}/{first['id']}"
        assert (await world.ask("PATCH", old, {"status": "inactive"})).status_code == 200
        await world.make(path, {})
        assert (await world.ask("PATCH", old, {"status": "active"})).status_code == 409
        assert (await world.ask("PATCH", old, {"status": "expired"})).status_code == 400
        for status in (204, 404):
            assert (await world.ask("DELETE", old)).status_code == status
        assert (await world.ask("GET", path)).json()["meta"]["total"] == 2
        assert (await world.ask("POST", path, {"secret": "mine"})).status_code == 400

    play(database_url, scenario)

"""``/v1/registry-settings``: how long undo is possible, and whose pulls count."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import httpx

from cloudcore.identity.rows.accounts import find_account_ids
from registry.metadata.settings import AccountSettings, find_settings
from tests.databases import on_both_databases
from tests.integration.pushing import client_of, make_world, refused
from tests.tenants import Install, allow, deny

PATH: Final = "/v1/registry-settings"


async def read(client: httpx.AsyncClient) -> dict[str, Any]:
    answer = await client.get(PATH)
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["registry_settings"])


async def test_settings_begin_with_defaults_and_change_by_parts(
    install: Install, client: httpx.AsyncClient
) -> None:
    other = await client_of(install, "other")
    begin = {
        "undelete_days": 7,
        "uncounted_pullers": [],
        "access_key_login": False,
        "updated_at": None,
    }
    assert await read(client) == begin
    changed = await client.patch(PATH, json={"undelete_days": 0})
    assert changed.status_code == 200
    first = changed.json()["registry_settings"]
    assert first == begin | {"undelete_days": 0, "updated_at": first["updated_at"]}
    assert first["updated_at"] is not None
    pattern = "crn:iam::01890000-0000-7000-8000-000000000001:role/scanner-*"
    second = await client.patch(PATH, json={"uncounted_pullers": [pattern, "*"]})
    found = second.json()["registry_settings"]
    assert found["undelete_days"] == 0
    assert found["uncounted_pullers"] == [pattern, "*"]
    assert found["updated_at"] > first["updated_at"]
    assert (await client.patch(PATH, json={})).status_code == 200
    assert (await read(client))["uncounted_pullers"] == [pattern, "*"]
    assert await read(other) == begin


@on_both_databases
async def test_changes_at_once_lose_nothing(client: httpx.AsyncClient) -> None:
    changes = [{"undelete_days": 3}, {"uncounted_pullers": ["*"]}]
    answers = await asyncio.gather(*(client.patch(PATH, json=body) for body in changes * 5))
    assert {answer.status_code for answer in answers} == {200}
    found = await read(client)
    assert (found["undelete_days"], found["uncounted_pullers"]) == (3, ["*"])


async def test_another_accounts_handle_is_not_told_to_exist(install: Install) -> None:
    await install.add_account("partner")
    client = await client_of(install, "acme")
    told = []
    for handle in ("partner", "nobody"):
        given = {"uncounted_pullers": [f"crn:iam::{handle}:role/x"]}
        error = (await client.patch(PATH, json=given)).json()["error"]
        told.append({**error, "request_id": None})
    assert told[0] == told[1]
    assert told[0]["params"]["reason"] == "foreign_account"


async def test_handles_are_kept_as_ids(install: Install) -> None:
    for handle in ("partner", "iam", "crn"):
        client = await client_of(install, handle)
        ids = await install.database.read(find_account_ids, [handle])
        given = [f"crn:iam::{handle}:service-account/backup", "crn:iam::par*:role/x"]
        kept = [f"crn:iam::{ids[handle]}:service-account/backup", given[1]]
        for sent in (given, kept):
            answer = await client.patch(PATH, json={"uncounted_pullers": sent})
            assert answer.json()["registry_settings"]["uncounted_pullers"] == kept


WRONG: Final[tuple[tuple[object, str], ...]] = (
    ({"undelete_days": -1}, "undelete_days"),
    ({"undelete_days": 91}, "undelete_days"),
    ({"undelete_days": "7"}, "undelete_days"),
    ({"undelete_days": 7.5}, "undelete_days"),
    ({"undelete_days": 10**20}, "body"),
    ({"undelete_days": True}, "undelete_days"),
    ({"uncounted_pullers": "*"}, "uncounted_pullers"),
    ({"uncounted_pullers": [1]}, "uncounted_pullers[0]"),
    ({"uncounted_pullers": [""]}, "uncounted_pullers[0]"),
    ({"uncounted_pullers": ["*"] * 51}, "uncounted_pullers"),
    ({"uncounted_pullers": ["scanner"]}, "uncounted_pullers[0]"),
    ({"uncounted_pullers": ["crn:iam::*"]}, "uncounted_pullers[0]"),
    ({"uncounted_pullers": ["crn:iam::x:role/a b"]}, "uncounted_pullers[0]"),
    ({"uncounted_pullers": ["crn:registry:local:x:repository/r"]}, "uncounted_pullers[0]"),
    ({"uncounted_pullers": ["*", "crn:iam::nobody:role/x"]}, "uncounted_pullers[1]"),
    ({"uncounted_pullers": ["x" * 513]}, "uncounted_pullers[0]"),
    ({"undelete": 1}, "undelete"),
    ([], "body"),
    (None, "body"),
)


async def test_what_cannot_be_a_setting_changes_nothing(client: httpx.AsyncClient) -> None:
    for days in (0, 90, 3):
        before = await client.patch(PATH, json={"undelete_days": days})
        assert before.json()["registry_settings"]["undelete_days"] == days
    for body, field in WRONG:
        answer = await client.patch(PATH, json=body)
        refused(answer, 400, "INVALID_INPUT", field, about=body)
    assert await read(client) == before.json()["registry_settings"]


async def test_a_policy_can_name_the_settings(install: Install) -> None:
    denied = deny("registry:*", on="crn:registry:local:*:registry-settings/default")
    nobody = await client_of(install, "third", allow("registry:*"), denied)
    refused(await nobody.get(PATH), 403, "ACCESS_DENIED")


async def test_an_account_without_a_row_has_the_defaults(install: Install) -> None:
    account = await install.add_account("acme")
    assert await install.database.read(find_settings, account.id) == AccountSettings(7, ())


async def test_what_is_deleted_keeps_its_time_until_restored(install: Install) -> None:
    world = await make_world(install)
    image = await world.push_image("image", "v1")
    path = f"{world.images}/{image['digest']}"

    async def deleted() -> list[str]:
        return [each["digest"] for each in (await world.get("/images/deleted"))["images"]]

    assert (await world.control.delete(path)).status_code == 204
    assert (await world.control.patch(PATH, json={"undelete_days": 0})).status_code == 200
    assert await deleted() == [image["digest"]]
    answer = await world.control.post(
        f"{world.images}/restore", json={"digests": [image["digest"]]}
    )
    assert answer.json()["failures"] == []
    assert (await world.control.delete(path)).status_code == 204
    assert await deleted() == []

"""Roles, their trust policies, and whom they are assigned to."""

from __future__ import annotations

from typing import Any

from tests.databases import on_both_databases
from tests.identity_world import World
from tests.tenants import trust

ROLES = "/v1/roles"


def reason(answer: Any) -> tuple[int, str, str]:  # noqa: ANN401
    error = answer.json()["error"]
    return answer.status_code, error["params"]["field"], error["params"]["reason"]


async def test_a_role_lives(identity: World) -> None:
    body = {"name": "deploy", "trust_policy": trust("acme"), "max_session_seconds": 7200}
    answer = await identity.ask("POST", ROLES, body)
    role = answer.json()["role"]
    account = identity.acme.account_id
    assert answer.status_code == 201
    assert answer.headers["location"] == f"{ROLES}/{role['id']}"
    assert role == {
        "id": role["id"],
        "crn": f"crn:iam::{account}:role/deploy",
        "name": "deploy",
        "description": "",
        "trust_policy": trust(account),
        "max_session_seconds": 7200,
        "last_used_at": None,
        "service": None,
        "created_at": role["created_at"],
        "updated_at": role["created_at"],
    }
    assert role["created_at"].endswith("Z")
    path = f"{ROLES}/{role['id']}"
    assert await identity.show(path) == role
    now = (await identity.ask("PATCH", path, {"description": "Ships."})).json()["role"]
    assert now == {**role, "description": "Ships.", "updated_at": now["updated_at"]}
    assert now["updated_at"] > role["updated_at"]
    assert (await identity.ask("PATCH", path, {})).json()["role"] == now

    gone = await identity.ask("DELETE", path)
    assert (gone.status_code, gone.content) == (204, b"")
    for method in ("GET", "DELETE"):
        assert await identity.status(method, path) == 404


async def test_names_are_unique_in_an_account_and_no_ids(identity: World) -> None:
    body = {"name": "deploy", "trust_policy": trust("acme")}
    await identity.make(ROLES, body)
    assert await identity.status("POST", ROLES, body) == 409
    await identity.make(ROLES, body, token="stranger")
    for name in ("01890000-0000-7000-8000-00000000000a", "Deploy", ".x", "a/b", "x\n", "é"):
        refused = await identity.ask("POST", ROLES, body | {"name": name})
        assert reason(refused) == (400, "name", "malformed")
    for wrong in ("", "x" * 64, None):
        assert await identity.status("POST", ROLES, body | {"name": wrong}) == 400


async def test_a_trust_policy_is_parsed_before_it_is_kept(identity: World) -> None:
    path = f"{ROLES}/{identity.acme.role_id}"
    for principal in ("*", "No One"):
        change = {"trust_policy": trust(principal)}
        made = await identity.ask("POST", ROLES, {"name": "x"} | change)
        for answer in (made, await identity.ask("PATCH", path, change)):
            assert reason(answer)[:2] == (400, "statements[0].principals")
    body = {"name": "deploy", "trust_policy": {}}
    assert await identity.status("POST", ROLES, body) == 400


async def test_a_session_lasts_one_to_twelve_hours(identity: World) -> None:
    for seconds in (3599, 43_201, "3600", 3600.5, True, None):
        body = {"name": "x", "trust_policy": trust("acme"), "max_session_seconds": seconds}
        answer = await identity.ask("POST", ROLES, body)
        assert reason(answer)[:2] == (400, "max_session_seconds")


async def test_roles_are_listed_by_name_page_by_page(identity: World) -> None:
    for name in ("b", "a.b", "c", "a-b"):
        await identity.make(ROLES, {"name": name, "trust_policy": trust("acme")})
    first = (await identity.ask("GET", f"{ROLES}?limit=3")).json()
    rest = f"{ROLES}?limit=3&marker={first['meta']['marker']}"
    found = [*first["roles"], *await identity.show(rest)]
    assert [role["name"] for role in found] == ["a-b", "a.b", "admin", "b", "c"]
    assert first["meta"]["total"] == 5
    stolen = await identity.ask("GET", rest, token="stranger")
    assert reason(stolen) == (400, "marker", "malformed")


@on_both_databases
async def test_a_role_is_assigned_to_members_of_the_organization(identity: World) -> None:
    role = await identity.make(ROLES, {"name": "ops", "trust_policy": trust("acme")})
    path = f"{ROLES}/{role['id']}/assignments"
    person, outsider = identity.acme.person, identity.globex.person
    crn = f"crn:iam::{person.organization_id}:user/{person.id}"
    foreign = crn.replace(person.id, outsider.id)
    for refused in (outsider.id, outsider.email, foreign, role["id"]):
        assert await identity.status("POST", path, {"user": refused}) == 404
    assert await identity.status("POST", path, {"user": "no one"}) == 400

    made = await identity.make(path, {"user": person.email.upper()})
    assert made["user"] == {"id": person.id, "crn": crn, "name": person.email}
    assert made["role"] == {"id": role["id"], "crn": role["crn"], "name": "ops"}
    for again in (person.id, crn):
        assert await identity.status("POST", path, {"user": again}) == 409
    listed = (await identity.ask("GET", path)).json()
    assert (listed["assignments"], listed["meta"]["total"]) == ([made], 1)
    for status in (204, 404):
        assert await identity.status("DELETE", f"{path}/{person.id}") == status

"""``GET /v1/users/me/roles``: the roles that a person can assume, and no others."""

from __future__ import annotations

from typing import Any, Final

import httpx
import pytest

from tests.integration.served_world import Served

PATH: Final = "/v1/users/me/roles"


class Person:
    """A member of acme's organization, to whom its administrator assigns roles."""

    def __init__(self, served: Served, token: str, email: str, crn: str) -> None:
        self.served = served
        self.token = token
        self.email = email
        self.crn = crn

    async def assign(self, name: str, *statements: dict[str, Any]) -> str:
        """Assign a new role with this trust policy; return its id."""
        token = self.served.acme.program_token
        trust = {"version": "1", "statements": list(statements)}
        role = await self.served.make(
            "/v1/roles", {"name": name, "trust_policy": trust}, token=token
        )
        path = f"/v1/roles/{role['id']}/assignments"
        await self.served.make(path, {"user": self.email}, token=token)
        return str(role["id"])

    async def roles(self, query: str = "") -> dict[str, Any]:
        answer = await self.served.ask("GET", PATH + query, token=self.token)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def assume(self, role_id: str) -> httpx.Response:
        return await self.served.ask("POST", "/v1/assume-role", {"role": role_id}, token=self.token)


@pytest.fixture
async def person(served: Served) -> Person:
    user, token = await served.add_person("pat")
    acme = served.acme
    await served.join(acme.organization_id, user.email, token, by=acme.person_token)
    crn = f"crn:iam::{user.organization_id}:user/{user.id}"
    return Person(served, token, user.email, crn)


def trust(*principals: str, effect: str = "allow") -> dict[str, Any]:
    return {"effect": effect, "principals": list(principals)}


async def test_only_roles_are_listed_whose_trust_lets_the_person_in(person: Person) -> None:
    """Each of those listed can be assumed, and none of the others."""
    acme = person.served.acme
    here, elsewhere = [
        trust(person.crn) | {"conditions": {"ip_address": [network]}}
        for network in ("198.51.100.0/24", "192.0.2.0/24")
    ]
    roles = {
        "trusted": await person.assign("trusted", trust(person.crn)),
        "account": await person.assign("account", trust(acme.account_id)),
        "denied": await person.assign(
            "denied", trust(person.crn), trust(person.crn, effect="deny")
        ),
        "here": await person.assign("here", here),
        "elsewhere": await person.assign("elsewhere", elsewhere),
    }
    page = await person.roles()
    listed = {role["name"] for role in page["roles"]}
    assert listed == {"trusted", "here"}
    assert page["meta"]["total"] == 2
    for name, role_id in roles.items():
        status = (await person.assume(role_id)).status_code
        assert status == (200 if name in listed else 403), name


async def test_pages_are_of_the_roles_that_are_listed(person: Person) -> None:
    shut = trust(person.served.acme.account_id)
    for number in range(7):
        await person.assign(f"shut-{number}", shut)
        await person.assign(f"open-{number}", trust(person.crn))
    names, query = [], "?limit=3"
    while query:
        page = await person.roles(query)
        names += [role["name"] for role in page["roles"]]
        assert page["meta"]["total"] == 7
        more = page["meta"].get("marker")
        query = f"?limit=3&marker={more}" if page["meta"]["has_more"] else ""
    assert sorted(names) == [f"open-{number}" for number in range(7)]

"""What a sign-in at a provider changes is in the audit log; changes meanwhile fail nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Concatenate, cast

import pytest

from cloudcore.db.base import Connection, ConstraintViolated, Database, P, T
from cloudcore.db.statement import Statement
from cloudcore.errors import NotFound, Unavailable
from cloudcore.identity.rows import accounts
from cloudcore.identity.rows.roles import ROLES
from cloudcore.identity.services.provider_sign_ins import SignedInPerson
from tests.databases import on_both_databases
from tests.dying import PassingDatabase
from tests.integration.provider_world import (
    ProviderWorld,
    complaint,
    open_provider_world,
    sign_in_as,
)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ProviderWorld]:
    async with open_provider_world(tmp_path / "data") as world:
        yield world


async def events(world: ProviderWorld, organization_id: str = "") -> list[dict[str, Any]]:
    """Return and forget the events about Zoe in the log of acme, or of its organization."""
    acme = world.served.acme
    token, query = acme.program_token, "who=zoe@example.org"
    if organization_id:
        token, query = acme.person_token, f"{query}&organization_id={organization_id}"
    answer = await world.served.ask("GET", f"/v1/audit-events?{query}", token=token)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["events"]
    return found[::-1]


async def test_what_a_sign_in_changes_is_recorded(world: ProviderWorld) -> None:
    acme, provider = world.served.acme, world.row
    await world.assign_group("devs")
    for groups in (["devs"], ["devs"], []):
        world.says("subject-1", "zoe@example.org", groups=groups)
        person = await world.redeem(await world.sign_in())
    # Nothing of a sign-in that is refused.
    world.says("subject-2", "zoe@example.org", groups=["devs"])
    assert "as another user of the provider" in complaint(await world.sign_in())

    found = await events(world, acme.organization_id)
    assert [each["action"] for each in found] == [
        "iam:CreateUser",
        "iam:LinkUser",
        *["iam:SignIn"] * 3,
    ]
    for each in found[:2]:
        assert each["principal"] == provider["crn"]
        assert each["resources"] == [person["crn"]]
        assert each["source"]["crn"] == person["crn"]
        assert each["source_ip"] == world.address
    assert found[2]["principal"] == person["crn"]
    assert found[2]["details"] == {"client": "cli", "identity_provider": provider["id"]}

    given, taken = await events(world)
    assert (given["action"], taken["action"]) == ("iam:AssignRole", "iam:UnassignRole")
    for each in (given, taken):
        assert each["principal"] == provider["crn"]
        assert each["resources"] == [f"crn:iam::{acme.account_id}:role/role"]
        assert each["details"] == {"user_id": person["id"]}


async def test_a_person_who_was_added_by_hand_is_linked_only(world: ProviderWorld) -> None:
    await world.add_person("zoe@example.org")
    world.says("subject-1", "zoe@example.org")
    await world.redeem(await world.sign_in())
    found = await events(world, world.served.acme.organization_id)
    assert [each["action"] for each in found] == ["iam:LinkUser", "iam:SignIn"]


class Deleting:
    """A connection of a change before whose lock of an account another one deleted a role."""

    def __init__(self, tx: Connection, role_id: str) -> None:
        self._tx = tx
        self._role_id = role_id

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of the connection
        return getattr(self._tx, name)

    def execute(self, statement: Statement, /, **parameters: object) -> int:
        if statement is accounts._RAISE_REVISION:
            with suppress(NotFound):
                ROLES.remove(self._tx, str(parameters["account_id"]), self._role_id)
        return self._tx.execute(statement, **parameters)


@on_both_databases
async def test_a_role_that_is_deleted_meanwhile_is_left_out(
    tmp_path: Path, metadata_url: str
) -> None:
    async with open_provider_world(tmp_path / "data", metadata_url) as world:
        served, token = world.served, world.served.acme.program_token

        async def new_role(name: str) -> str:
            statement = {"effect": "allow", "principals": ["acme"]}
            trust = {"version": "1", "statements": [statement]}
            made = await served.make(
                "/v1/roles", {"name": name, "trust_policy": trust}, token=token
            )
            await world.assign_group("devs", made["id"])
            return str(made["id"])

        def sign_in(tx: Connection, role_id: str, *groups: str) -> SignedInPerson:
            deleting = cast("Connection", Deleting(tx, role_id))
            return sign_in_as(deleting, world, "subject-1", "zoe@example.org", *groups)

        # One that would be given, then one that would be taken.
        found = await served.database.write(sign_in, await new_role("first"), "devs")
        assert (found.is_created, found.roles) == (True, [])
        second = await new_role("second")
        given = await served.database.write(sign_in, "", "devs")
        assert [(each.name, each.is_taken) for each in given.roles] == [("second", False)]
        found = await served.database.write(sign_in, second)
        assert (found.is_created, found.roles) == (False, [])


class FailingDatabase(PassingDatabase):
    """A database whose second write from now on fails."""

    def __init__(self, database: Database, error: Exception) -> None:
        super().__init__(database)
        self._error = error
        self._writes = 0

    async def write(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        self._writes += 1
        if self._writes == 2:
            raise self._error
        return await super().write(change, *args, **kwargs)


async def test_every_failure_is_a_page(world: ProviderWorld) -> None:
    for error, status, words in (
        (NotFound("there is no such role"), 403, "There is no such role."),
        (ConstraintViolated("fk"), 403, "was changed meanwhile; open the link again."),
        (Unavailable("busy", retry_after=7), 503, "Try again in 7 seconds."),
    ):
        world.says("subject-1", "zoe@example.org")
        answer = world.provider.authorize(await world.leave())
        noting = world.served.database
        whole, noting._database = noting._database, FailingDatabase(noting._database, error)
        page = await world.come_back(answer, at_most=599)
        noting._database = whole
        assert page.status_code == status, page.text
        assert page.headers["content-type"].startswith("text/html")
        assert words in page.text
        assert page.headers.get("retry-after") == ("7" if status == 503 else None)

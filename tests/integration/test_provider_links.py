"""Whom a provider speaks for, and what of a sign-in there is in the audit log."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Concatenate, cast

import pytest

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection, ConstraintViolated, Database, P, T
from cloudcore.db.statement import Statement
from cloudcore.errors import AccessDenied, NotFound, Unavailable
from cloudcore.identity.rows import accounts, users
from cloudcore.identity.rows.accounts import ACCOUNTS, Account
from cloudcore.identity.rows.roles import ROLES
from cloudcore.identity.services import identity_providers, roles
from cloudcore.identity.services.provider_sign_ins import SignedInPerson
from tests.databases import on_both_databases
from tests.dying import PassingDatabase
from tests.integration.provider_world import (
    ProviderWorld,
    add_provider,
    complaint,
    open_provider_world,
    sign_in_as,
    trust_provider,
)
from tests.integration.served_world import Tenant


@pytest.fixture
async def world(tmp_path: Path, metadata_url: str) -> AsyncIterator[ProviderWorld]:
    async with open_provider_world(tmp_path / "data", metadata_url) as world:
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
        person = await world.person("subject-1", "zoe@example.org", groups=groups)
    # Nothing of a sign-in that is refused.
    assert "as another user of the provider" in await world.complaint(
        "subject-2", "zoe@example.org", groups=["devs"]
    )

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
    await world.person("subject-1", "zoe@example.org")
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
async def test_a_role_that_is_deleted_meanwhile_is_left_out(world: ProviderWorld) -> None:
    served, token = world.served, world.served.acme.program_token

    async def new_role(name: str) -> str:
        statement = {"effect": "allow", "principals": ["acme"]}
        trust = {"version": "1", "statements": [statement]}
        made = await served.make("/v1/roles", {"name": name, "trust_policy": trust}, token=token)
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


async def test_a_person_of_two_organizations_is_not_taken_by_address(world: ProviderWorld) -> None:
    served = world.served
    ann = await world.add_person("ann@example.org")
    person = await world.person("subject-ann", "ann@example.org")
    assert person["id"] == ann["id"]
    globex = served.globex
    await served.join(
        globex.organization_id, "ann@example.org", person["token"], by=globex.person_token
    )
    # The link no longer signs her in: what she has there is not acme's to give.
    assert "may no longer sign the person in" in complaint(await world.sign_in())
    member = f"/v1/organizations/{globex.organization_id}/members/{ann['id']}"
    left = await served.ask("DELETE", member, token=person["token"])
    assert left.status_code == 204
    assert (await world.redeem(await world.sign_in()))["id"] == ann["id"]
    await served.join(
        globex.organization_id, "ann@example.org", person["token"], by=globex.person_token
    )
    about = {
        "name": "Another",
        "issuer": world.provider.url,
        "client_id": "entrepot",
        "client_secret": "a secret: of+the/client",
        "email_domains": ["example.org"],
    }
    path = f"/v1/organizations/{globex.organization_id}/identity-providers"
    world.row = await served.make(path, about, token=globex.person_token)
    assert "not this organization's alone" in await world.complaint("subject-x", "ann@example.org")


async def test_a_person_who_owns_accounts_signs_in_by_no_provider(world: ProviderWorld) -> None:
    """By a link from before, nor by e-mail address: whoever names the person would have them."""
    served = world.served
    await world.add_person("ann@example.org")
    linked = await world.person("subject-ann", "ann@example.org")
    await served.database.write(ACCOUNTS.add, account_of(linked, "of-ann", served.clock.now))
    assert "owns accounts" in complaint(await world.sign_in())

    eve = await world.add_person("eve@example.org")
    await served.database.write(ACCOUNTS.add, account_of(eve, "of-eve", served.clock.now))
    assert "not this organization's alone" in await world.complaint(
        "subject-eve", "eve@example.org"
    )


async def test_an_owner_is_found_by_a_link_alone(world: ProviderWorld) -> None:
    served, acme = world.served, world.served.acme
    ann = await world.add_person("ann@example.org")
    member = f"/v1/organizations/{acme.organization_id}/members/{ann['id']}"

    async def become(role: str) -> None:
        answer = await served.ask("PATCH", member, {"role": role}, token=acme.person_token)
        assert answer.status_code == 200, answer.text

    await become("owner")
    world.says("subject-ann", "ann@example.org")
    for _ in range(2):  # the first try links nothing either
        assert "no owner is found by e-mail address" in complaint(await world.sign_in())
    await become("member")
    assert (await world.redeem(await world.sign_in()))["id"] == ann["id"]
    await become("owner")
    assert (await world.redeem(await world.sign_in()))["id"] == ann["id"]


def account_of(person: dict[str, Any], handle: str, now: int) -> Account:
    personal = person["crn"].split(":")[3]
    return Account(uuid7(), personal, handle, now)


@on_both_databases
async def test_sign_ins_at_once_link_once(world: ProviderWorld) -> None:
    assert "printable characters" in await world.complaint("null\0", "ann@example.org")
    assert "no verified e-mail address" in await world.complaint(
        "other", "ann\0@example.org", groups=["devs\0"]
    )
    served = world.served
    ann = await world.add_person("ann@example.org")

    async def sign_in(subject: str) -> str:
        """Sign in as this subject; return the person's id, or the refusal."""
        try:
            found = await served.database.write(sign_in_as, world, subject, "ann@example.org")
        except AccessDenied as error:
            return error.message
        return found.user.id

    served.database.noted.clear()
    found = Counter(await asyncio.gather(*map(sign_in, ["one", "two"] * 3)))
    assert found.pop(ann["id"]) == 3
    (refusal,) = found
    assert "signs in as another user of the provider" in refusal
    # What is asked of the person is asked under the lock of the person's row.
    ran = [each.statement for each in served.database.noted]
    assert 0 <= ran.index(users._LOCK) < ran.index(users._COUNT_OTHER_MEMBERSHIPS)


async def test_a_provider_that_ends_while_a_sign_in_is_recorded_signs_nobody_in(
    world: ProviderWorld,
) -> None:
    served, zoe = world.served, "zoe@example.org"
    await world.change(status="inactive")
    with pytest.raises(AccessDenied, match="this identity provider has been turned off"):
        await served.database.write(sign_in_as, world, "one", zoe)
    ended = await served.ask("DELETE", world.path, token=served.acme.person_token)
    assert ended.status_code == 204
    with pytest.raises(AccessDenied, match="there is no such identity provider any more"):
        await served.database.write(sign_in_as, world, "one", zoe)
    users = await served.ask("GET", "/v1/users", token=served.acme.person_token)
    assert zoe not in users.text


async def test_what_cannot_be_a_provider_or_group_is_refused(
    world: ProviderWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, acme = world.served, world.served.acme
    made = {"issuer": world.provider.url, "client_id": "c"}
    await add_provider(served, world.provider.url, name="Second")

    async def refusal(method: str, path: str, body: object, token: str = "") -> tuple[int, str]:
        answer = await served.ask(method, path, body, token=token or acme.person_token)
        return answer.status_code, answer.json()["error"]["message"]

    path, own = world.path.rpartition("/")[0], f"/v1/organizations/{acme.person.organization_id}"
    taken = 409, "the organization has an identity provider of this name"
    assert await refusal("POST", path, {**made, "name": "Second"}) == taken
    assert await refusal("PATCH", world.path, {"name": "Second"}) == taken
    query = {**made, "name": "x", "issuer": f"{world.provider.url}/?a=b"}
    assert await refusal("POST", path, query) == (400, "issuer: it has a query")
    status, words = await refusal("POST", f"{own}/identity-providers", {**made, "name": "x"})
    assert (status, words.startswith("a personal organization has one member")) == (409, True)
    monkeypatch.setattr(identity_providers, "MAX_PROVIDERS", 2)
    status, words = await refusal("POST", path, {**made, "name": "Third"})
    assert (status, "at most 2 identity providers" in words) == (409, True)

    monkeypatch.setattr(roles, "MAX_GROUPS", 1)  # and it has one
    groups = f"/v1/roles/{acme.ids['/v1/roles/{}']}/group-assignments"
    for group, refused in (
        ("ops", (409, "a role is assigned to at most 1 groups")),
        ("a\x85b", (400, "group has control characters")),
    ):
        body = {"identity_provider": world.row["id"], "group": group}
        assert await refusal("POST", groups, body, acme.program_token) == refused


async def trust_and_assign(world: ProviderWorld, tenant: Tenant, person: dict[str, Any]) -> str:
    """Let a role trust the provider's persons, and assign it to one by hand; return its id."""
    role_id, token = tenant.ids["/v1/roles/{}"], tenant.program_token
    await trust_provider(world, role_id, by=token)
    path = f"/v1/roles/{role_id}/assignments"
    await world.served.make(path, {"user": person["id"]}, token=token)
    return role_id


async def test_trust_in_a_provider_is_for_its_current_members(world: ProviderWorld) -> None:
    served, acme, globex = world.served, world.served.acme, world.served.globex
    person = await world.person("subject-1", "zoe@example.org")

    async def assume(role_id: str, status: int) -> None:
        await world.assume(role_id, person["token"], status=status)

    own = await trust_and_assign(world, acme, person)
    await assume(own, 200)
    await world.change(status="inactive")
    await assume(own, 401)  # the sign-in ended, too
    person["token"] = await world.by_password(person)
    await assume(own, 403)
    await world.change(status="active")
    await assume(own, 200)

    organization = globex.organization_id
    await served.join(organization, "zoe@example.org", person["token"], by=globex.person_token)
    theirs = await trust_and_assign(world, globex, person)
    await assume(theirs, 200)
    member = f"/v1/organizations/{acme.organization_id}/members/{person['id']}"
    assert (await served.ask("DELETE", member, token=acme.person_token)).status_code == 204
    await assume(theirs, 403)

    # Who comes back is linked anew: nothing is left of the old link, nor of the trust by it.
    path = f"/v1/organizations/{organization}/members/{person['id']}"
    assert (await served.ask("DELETE", path, token=person["token"])).status_code == 204
    token = person["token"]
    await served.join(acme.organization_id, "zoe@example.org", token, by=acme.person_token)
    role_id = await trust_and_assign(world, acme, person)
    await assume(role_id, 403)
    assert (await world.person("subject-2", "zoe@example.org"))["id"] == person["id"]
    await assume(role_id, 200)

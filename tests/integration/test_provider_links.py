"""Whom a provider speaks for: people of its organization alone, as long as they are that."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cloudcore.clock import uuid7
from cloudcore.errors import AccessDenied
from cloudcore.identity.rows import users
from cloudcore.identity.rows.accounts import ACCOUNTS, Account
from tests.databases import on_both_databases
from tests.integration.provider_world import (
    ProviderWorld,
    complaint,
    open_provider_world,
    sign_in_as,
    trust_provider,
)
from tests.integration.served_world import Tenant


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ProviderWorld]:
    async with open_provider_world(tmp_path / "data") as world:
        yield world


async def test_a_person_of_another_organization_too_is_not_taken_by_address(
    world: ProviderWorld,
) -> None:
    served = world.served
    ann = await world.add_person("ann@example.org")
    world.says("subject-ann", "ann@example.org")
    person = await world.redeem(await world.sign_in())
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
    world.says("subject-x", "ann@example.org")
    assert "not this organization's alone" in complaint(await world.sign_in())


async def test_a_person_who_owns_accounts_signs_in_by_no_provider(world: ProviderWorld) -> None:
    """By a link from before, nor by e-mail address: whoever names the person would have them."""
    served = world.served
    await world.add_person("ann@example.org")
    world.says("subject-ann", "ann@example.org")
    linked = await world.redeem(await world.sign_in())
    await served.database.write(ACCOUNTS.add, account_of(linked, "of-ann", served.clock.now))
    assert "owns accounts" in complaint(await world.sign_in())

    eve = await world.add_person("eve@example.org")
    await served.database.write(ACCOUNTS.add, account_of(eve, "of-eve", served.clock.now))
    world.says("subject-eve", "eve@example.org")
    assert "not this organization's alone" in complaint(await world.sign_in())


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
    """Return the row of an account of a person's own."""
    personal = person["crn"].split(":")[3]
    return Account(uuid7(), personal, handle, "active", True, now)


@on_both_databases
async def test_sign_ins_at_once_link_once(tmp_path: Path, metadata_url: str) -> None:
    async with open_provider_world(tmp_path / "data", metadata_url) as world:
        world.says("null\0", "ann@example.org")
        assert "printable characters" in complaint(await world.sign_in())
        world.says("other", "ann\0@example.org", groups=["devs\0"])
        assert "no verified e-mail address" in complaint(await world.sign_in())
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


async def trust_and_assign(world: ProviderWorld, tenant: Tenant, person: dict[str, Any]) -> str:
    """Let a role trust the provider's persons, and assign it to one by hand; return its id."""
    role_id, token = tenant.ids["/v1/roles/{}"], tenant.program_token
    await trust_provider(world, role_id, by=token)
    path = f"/v1/roles/{role_id}/assignments"
    await world.served.make(path, {"user": person["id"]}, token=token)
    return role_id


async def test_trust_in_a_provider_needs_it_active_and_the_person_a_member(
    world: ProviderWorld,
) -> None:
    served, acme, globex = world.served, world.served.acme, world.served.globex
    world.says("subject-1", "zoe@example.org")
    person = await world.redeem(await world.sign_in())

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
    world.says("subject-2", "zoe@example.org")
    assert (await world.redeem(await world.sign_in()))["id"] == person["id"]
    await assume(role_id, 200)

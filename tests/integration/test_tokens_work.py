"""What a token request may cost: scopes, work, and turns for others while it is decided."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from cloudcore.clock import uuid7
from cloudcore.errors import Conflict, PlatformError
from cloudcore.iam.policy import MAX_PRINCIPAL_BYTES
from cloudcore.identity.rows.accounts import increment_revision
from cloudcore.identity.rows.policies import ATTACHMENTS, Attachment, PolicyRow
from cloudcore.identity.services.policies import create_policy
from registry.oci.reference import Name
from registry.services.access.decisions import PolicyTooCostly
from registry.services.access.logins import USERNAME, ClientCredential
from registry.services.access.tokens import (
    REQUEST_STEPS,
    SLICE_DECISIONS,
    SLICE_STEPS,
    DecisionBudget,
)
from tests.databases import on_both_databases
from tests.integration.tokens_world import access_of
from tests.tenants import Install, Program, allow, basic, bearer, deny, document, let, note_nothing

HALF = "a" * 50
LONG_NAMES = [f"acme/{'a' * 195}{number}" for number in range(10, 40)]


def costly() -> list[dict[str, Any]]:
    """Return statements of 18 KB whose patterns are nearly found everywhere in such names."""
    patterns = [f"crn:*{HALF}b{HALF}{number}*" for number in range(80)]
    return [deny("*") | {"resources": patterns}] * 2


async def costly_program(install: Install, policies: int = 2) -> Program:
    account = await install.add_account("acme")
    program = await install.add_program(account, "ci", allow("*"))
    for number in range(policies):
        await install.attach(account, f"p{number}", costly(), service_account_id=program.id)
    return program


async def test_a_token_is_for_thirty_scopes(install: Install) -> None:
    scopes = [f"repository:acme/r{number}:pull" for number in range(31)]
    form = {"grant_type": "password", "username": "token", "password": "x"}
    for over in (scopes, [" ".join(scopes)]):
        query = httpx.QueryParams([("scope", scope) for scope in over])
        async with install.connect() as client:
            asked = await client.get("/v2/token", params=query)
            posted = await client.post("/v2/token", data=form | {"scope": over})
        assert asked.status_code == 400
        assert asked.json()["errors"][0]["code"] == "UNSUPPORTED"
        assert "30 scopes" in asked.json()["errors"][0]["message"]
        assert (posted.status_code, posted.json()["error"]) == (400, "invalid_request")
    assert len(access_of(await install.exchange(None, *scopes[:-1]))) == 30


async def test_a_request_that_costs_too_much_is_refused_with_a_reason(install: Install) -> None:
    password = await install.login(await costly_program(install))
    scopes = [f"repository:{name}:pull,push,delete" for name in LONG_NAMES]
    form = {"grant_type": "password", "username": "token", "password": password}
    async with install.connect() as client:
        asked = await client.get(
            "/v2/token", params={"scope": " ".join(scopes)}, headers=basic(password)
        )
        posted = await client.post("/v2/token", data=form | {"scope": " ".join(scopes)})
    assert asked.status_code == 403
    assert asked.json()["errors"][0]["code"] == "DENIED"
    assert "too long to evaluate" in asked.json()["errors"][0]["message"]
    assert (posted.status_code, posted.json()["error"]) == (400, "invalid_scope")
    assert "too long to evaluate" in posted.json()["error_description"]
    one = await install.exchange(password, scopes[0])
    assert access_of(one)[0]["actions"] == ["pull", "push", "delete"]


@pytest.mark.parametrize("costly_with", ["::", ":????????-*:"])
async def test_the_cost_does_not_tell_whether_another_account_or_repository_exists(
    install: Install, costly_with: str
) -> None:
    """One's own policies could be made to cost much only in a CRN with an account, or without."""
    program = await install.add_program(await install.add_account("acme"), "ci", allow("*"))
    patterns = [f"crn:*{costly_with}repository/*{HALF}b{HALF}{number}*" for number in range(70)]
    for number in range(2):
        statements = [deny("*") | {"resources": patterns}] * 2
        on = {"service_account_id": program.id}
        await install.attach(program.account, f"p{number}", statements, **on)
    await install.add_account("empty")
    sharing = await install.add_account("sharing")
    for name in LONG_NAMES:
        await install.add_repository(sharing, name.removeprefix("acme/"), let(sharing.id))
    password = await install.login(program)
    for handle in ("nobody", "empty", "sharing"):
        names = [name.replace("acme/", f"{handle}/") for name in LONG_NAMES]
        scopes = [f"repository:{name}:pull,push" for name in names]
        token = await install.exchange(password, *scopes)
        assert all(each["actions"] == [] for each in access_of(token)), handle


async def test_the_cost_tells_nothing_to_those_who_do_not_sign_in(install: Install) -> None:
    """Policies that let everyone in from elsewhere could use up all but what one more needs."""
    sharing = await install.add_account("acme")
    networks = [f"fd00:{number:x}::/32" for number in range(100)]
    from_elsewhere = let("*") | {"conditions": {"ip_address": networks}}
    for name in LONG_NAMES:
        await install.add_repository(sharing, name.removeprefix("acme/"), *[from_elsewhere] * 11)
    token = await install.exchange(None, *(f"repository:{name}:pull" for name in LONG_NAMES))
    assert [each["actions"] for each in access_of(token)] == [[]] * len(LONG_NAMES)


async def test_others_have_their_turn_between_decisions_whose_steps_are_not_counted() -> None:
    count = 0

    async def others() -> None:
        nonlocal count
        while True:
            count += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(others())
    budget = DecisionBudget()
    for _ in range(10 * SLICE_DECISIONS):
        await budget.pause()
    running.cancel()
    assert count == 9


async def test_others_have_their_turn_while_scopes_are_decided(install: Install) -> None:
    """Counted, not timed: between two turns never more than a slice and one decision."""
    password = await install.login(await costly_program(install))

    async def turns_beside(names: list[str]) -> tuple[int, PlatformError | None]:
        turns, error = 0, None
        requested = {Name(*name.split("/")): ("pull", "push", "delete") for name in names}
        credential = ClientCredential(USERNAME, password)
        exchange = asyncio.ensure_future(
            install.tokens.exchange(credential, requested, None, note_nothing)
        )
        while not exchange.done():
            turns += 1
            await asyncio.sleep(0)
        try:
            exchange.result()
        except PlatformError as caught:
            error = caught
        return turns, error

    await turns_beside(LONG_NAMES[:1])  # from now on the policies are compiled
    few, none = await turns_beside(["acme/r"])
    many, error = await turns_beside(LONG_NAMES)
    assert none is None
    assert isinstance(error, PolicyTooCostly)
    assert many - few >= REQUEST_STEPS // SLICE_STEPS // 4


async def test_the_catalog_takes_turns_too(install: Install) -> None:
    program = await costly_program(install)
    for name in LONG_NAMES:
        await install.add_repository(program.account, name.removeprefix("acme/"))
    token = await install.exchange(await install.login(program), "registry:catalog:*")
    async with install.connect() as client:
        listed = asyncio.ensure_future(client.get("/v2/_catalog", headers=bearer(token)))
        turns = 0
        while not listed.done():
            turns += 1
            await asyncio.sleep(0)
    assert listed.result().json()["repositories"] == LONG_NAMES
    assert turns >= len(LONG_NAMES) - 1


@on_both_databases
async def test_policies_of_a_principal_have_a_largest_size_together(install: Install) -> None:
    program = await costly_program(install)
    role = await install.add_role_session(program.account, "role", allow("*"))
    for name in ("second", "third"):
        await install.attach(program.account, name, costly(), role_id=role.id)
    assert await costly_sizes(install, program) < MAX_PRINCIPAL_BYTES
    account, words = program.account, f"at most {MAX_PRINCIPAL_BYTES} bytes together"
    for kind, principal in (("service_account_id", program), ("role_id", role)):
        with pytest.raises(Conflict, match=words):
            await install.attach(account, f"x{kind}", costly(), **{kind: principal.id})
        with pytest.raises(Conflict, match=words):
            await install.say(principal, *costly())
        await install.say(principal, allow("*"))
    await install.say(program, allow("*"), allow("*", on="crn:*"))  # a little more still fits


async def costly_sizes(install: Install, program: Program) -> int:
    policies = await install.authenticator.policies_of(await install.principal(program))
    return sum(
        len(text) + 3
        for policy in policies
        for statement in policy.statements
        for text in statement.resources.texts
    )


async def test_who_had_more_policies_before_is_bounded_too(install: Install) -> None:
    """Nine of 18 KB, as could be attached once: what costs too much is refused, not decided."""
    program = await costly_program(install, policies=0)
    now = install.clock()
    for number in range(9):
        policy = PolicyRow(uuid7(), program.account.id, f"p{number}", "", "", 1, now, now)
        await install.database.write(create_policy, policy, document(*costly()))
        on = Attachment(uuid7(), program.account.id, policy.id, program.id, None, now)
        await install.database.write(ATTACHMENTS.add, on)
    await install.database.write(increment_revision, program.account.id)
    password = await install.login(program)
    scopes = " ".join(f"repository:{name}:pull" for name in LONG_NAMES)
    sharing, name = await install.add_account("sharing"), LONG_NAMES[0].removeprefix("acme/")
    own = await install.add_repository(program.account, name)
    shows = let(program.account.id, actions=["registry:DescribeImages"])
    foreign = await install.add_repository(sharing, name, shows)
    short = await install.exchange(password, "repository:acme/r:pull")
    assert access_of(short)[0]["actions"] == ["pull"]
    async with install.connect() as client:
        asked = await client.get("/v2/token", params={"scope": scopes}, headers=basic(password))
        headers = bearer(program.access_token)
        made = await client.post("/v1/repositories", json={"name": name}, headers=headers)
        seen, *hidden = [
            await client.get(f"/v1/repositories/{each}/images", headers=headers)
            for each in (own, foreign, uuid7())
        ]
    assert asked.status_code == made.status_code == seen.status_code == 403
    assert "too long to evaluate" in asked.json()["errors"][0]["message"]
    for answer in (made, seen):
        assert "too long to evaluate" in answer.json()["error"]["message"]
    shared, absent = [each.json()["error"] | {"request_id": ""} for each in hidden]
    assert (shared, hidden[0].status_code) == (absent, 404)

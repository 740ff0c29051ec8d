"""Invitations, by address and code: nobody is told who has an address; none binds a stranger."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import httpx
import pytest

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.iam import passwords
from cloudcore.iam.passwords import SALT_BYTES, salt_of
from cloudcore.identity.routes.members import WRONG_CODES
from cloudcore.identity.rows.organizations import forget_invitations
from cloudcore.identity.rows.users import PEOPLE, list_users_by_email
from cloudcore.identity.services.organizations import INVITATION_SECONDS
from cloudcore.identity.services.users import first_salt
from tests.databases import on_both_databases
from tests.identity_world import World, open_world
from tests.integration.identity_operations import dump
from tests.integration.noting_database import NotingDatabase
from tests.passwords import KEPT_PASSWORD

VICTIM = "guest@example.org"
SECOND = 1_000_000


def invitations_of(organization: str) -> str:
    return f"/v1/organizations/{organization}/invitations"


@on_both_databases
async def test_the_inviter_lists_revokes_and_renews(identity: World) -> None:
    await identity.person("guest")
    path = invitations_of(identity.acme.organization_id)
    body = {"email": "Guest@Example.org", "role": "billing"}
    made = await identity.make(path, body, token="person")
    first = made.pop("code")
    assert (made["email"], made["role"]) == (VICTIM, "billing")
    await identity.invite("another@example.org")
    other, listed = await identity.show(path, token="person")
    assert (other["email"], listed) == ("another@example.org", made)
    assert first not in await identity.database.read(dump)

    second = await identity.invite(VICTIM)
    assert (await identity.accept(first, token="guest")).status_code == 404
    listed = (await identity.ask("GET", path, token="person")).json()
    assert listed["meta"]["total"] == 2
    renewed = listed["invitations"][1]
    for status in (204, 404):
        assert await identity.status("DELETE", f"{path}/{renewed['id']}", token="person") == status
    assert (await identity.accept(second, token="guest")).status_code == 404
    third = await identity.invite(VICTIM, role="billing")
    accepted = await identity.accept(third, token="guest")
    assert accepted.json()["organization"]["role"] == "billing"
    assert (await identity.accept(third, token="guest")).status_code == 404  # one use
    assert await identity.show(path, token="person") == [other]
    for token, status in (("guest", 403), ("outsider", 404), ("admin", 403)):
        assert await identity.status("GET", path, token=token) == status
        assert await identity.status("DELETE", f"{path}/{renewed['id']}", token=token) == status


async def test_a_person_added_under_the_address_of_another_cannot_take_the_invitation(
    identity: World,
) -> None:
    acme, globex = identity.acme.organization_id, identity.globex.organization_id
    await identity.person("guest")
    code = await identity.invite(VICTIM)
    await identity.add_user("impostor", VICTIM, globex, "outsider")
    # Nothing tells the impostor of the invitation, and neither address nor guess accepts it.
    seen = await identity.show("/v1/organizations", token="impostor")
    assert {each["id"] for each in seen}.isdisjoint({acme})
    path = f"/v1/organizations/{acme}"
    assert await identity.status("GET", path, token="impostor") == 404
    assert await identity.status("POST", f"{path}/accept", token="impostor") == 400
    assert (await identity.accept("ein_guess", token="impostor")).status_code == 404
    other = await identity.make("/v1/organizations", {"name": "Evil"}, token="outsider")
    own = await identity.invite(VICTIM, organization=other["id"], by="outsider")
    assert (await identity.accept(own, token="impostor")).status_code == 404
    # A code is good for its address only.
    assert (await identity.accept(code, token="outsider")).status_code == 404
    assert (await identity.accept(code, token="guest")).status_code == 200
    members = await identity.show(f"{path}/members", token="person")
    assert VICTIM in {each["user"]["name"] for each in members}


def told(answer: httpx.Response) -> tuple[int, str, dict[str, str]]:
    request_id = answer.headers.pop("x-request-id")
    return answer.status_code, answer.text.replace(request_id, ""), dict(answer.headers)


async def test_a_code_is_refused_alike_whatever_is_wrong_with_it(identity: World) -> None:
    acme, globex = identity.acme.organization_id, identity.globex.organization_id
    for name in ("guest", "other"):
        await identity.person(name)
    answers = []

    async def refused(code: str, organization: str = acme) -> None:
        answer = await identity.accept(code, token="guest", organization=organization)
        answers.append(told(answer))

    await refused("ein_guess")  # no invitation
    await refused(await identity.invite("other@example.org"))  # for another address
    await refused("ein_guess", uuid7())  # no organization
    code = await identity.invite(VICTIM)
    await refused("ein_guess")  # another code
    await refused(code, globex)  # another organization's
    for each in await identity.show(invitations_of(acme), token="person"):
        await identity.ask("DELETE", f"{invitations_of(acme)}/{each['id']}", token="person")
    await refused(code)  # revoked
    code = await identity.invite(VICTIM)
    identity.now += INVITATION_SECONDS * SECOND
    await refused(code)  # ended
    assert answers[0][0] == 404
    assert answers == [answers[0]] * len(answers)
    assert await identity.database.write(forget_invitations, identity.now) == 1


async def test_wrong_codes_are_counted_and_right_ones_are_not(identity: World) -> None:
    await identity.person("guest")
    for _ in range(WRONG_CODES.limit):
        code = await identity.invite(VICTIM)
        assert (await identity.accept(code, token="guest")).status_code == 200
        await leave(identity, "guest")
    tries = [
        await identity.accept("ein_guess", token="guest") for _ in range(WRONG_CODES.limit + 1)
    ]
    statuses = [each.status_code for each in tries]
    assert statuses == [404] * WRONG_CODES.limit + [429]
    code = await identity.invite(VICTIM)
    refused = await identity.accept(code, token="guest")
    assert (refused.status_code, "retry-after" in refused.headers) == (429, True)
    assert refused.json()["error"]["code"] == "TOO_MANY_ATTEMPTS"
    assert not [name for name in refused.headers if name.startswith("x-ratelimit")]
    identity.now += WRONG_CODES.window_seconds * SECOND
    assert (await identity.accept(code, token="guest")).status_code == 200


async def leave(world: World, token: str) -> None:
    person = world.principals[token].id
    path = f"/v1/organizations/{world.acme.organization_id}/members/{person}"
    assert await world.status("DELETE", path, token=token) == 204


async def test_an_organization_has_one_member_of_an_address(identity: World) -> None:
    acme = identity.acme.organization_id
    await identity.person("guest")
    path = invitations_of(acme)
    for email in ("person@example.org", "Person@Example.org"):
        assert await identity.status("POST", path, {"email": email}, token="person") == 409
    code = await identity.invite(VICTIM)
    await identity.add_user("namesake", VICTIM, acme, "person")
    for _ in range(WRONG_CODES.limit + 2):  # the code is right: that is not counted
        refused = await identity.accept(code, token="guest")
        assert refused.status_code == 409
    again = {"email": VICTIM, "organization": acme}
    assert await identity.status("POST", "/v1/users", again, token="person") == 409
    assert await identity.status("POST", path, again, token="person") == 400
    # Whoever has left is not added a second time, but can be invited.
    await leave(identity, "namesake")
    assert await identity.status("POST", "/v1/users", again, token="person") == 409
    await identity.join("guest")
    assert (await identity.accept(code, token="namesake")).status_code == 404


async def test_a_code_is_used_once_or_revoked(identity: World) -> None:
    acme = identity.acme.organization_id
    for turn in range(4):
        name = f"guest-{turn}"
        await identity.person(name)
        code = await identity.invite(f"{name}@example.org")
        found = await asyncio.gather(*(identity.accept(code, token=name) for _ in range(3)))
        assert Counter(each.status_code for each in found) == {200: 1, 404: 2}

        late = f"late-{turn}"
        await identity.person(late)
        made = await identity.make(
            invitations_of(acme), {"email": f"{late}@example.org"}, token="person"
        )
        path = f"{invitations_of(acme)}/{made['id']}"
        accepted, revoked = await asyncio.gather(
            identity.accept(made["code"], token=late),
            identity.status("DELETE", path, token="person"),
        )
        outcome = (accepted.status_code, revoked)
        assert outcome in ((200, 404), (404, 204)), outcome
        is_member = (await identity.ask("GET", f"/v1/organizations/{acme}", token=late)).is_success
        assert is_member == (accepted.status_code == 200)


@on_both_databases
async def test_of_namesakes_at_once_one_gets_in(identity: World) -> None:
    """An add beside an acceptance, of one address; `test_identity_races` has several adds."""
    acme = identity.acme.organization_id
    await identity.person("guest")
    code = await identity.invite(VICTIM)
    body = {"email": VICTIM, "organization": acme}
    made, accepted = await asyncio.gather(
        identity.status("POST", "/v1/users", body, token="person"),
        identity.accept(code, token="guest"),
    )
    outcome = (made, accepted.status_code)
    assert outcome in ((201, 409), (409, 200)), outcome

    def count(tx: Connection) -> list[str]:
        return [each.email for each in PEOPLE.list(tx, acme, "", "", 100)]

    emails = await identity.database.read(count)
    assert len(emails) == len(set(emails)) == 2


FREE, TAKEN, SHARED = "free@example.org", "took@example.org", "many@example.org"
_VARYING = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[^\"]*"
    r"|(?<=\"code\":\")[^\"]*|(?<=\"one_time_password\":\")[^\"]*"
)


@pytest.fixture
def salts(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Note the salt of every derivation, and make them cost nothing."""
    noted: list[bytes] = []

    def derive(_: passwords.ScryptCost, __: str, salt: bytes) -> bytes:
        noted.append(salt)
        return bytes(32)

    monkeypatch.setattr(passwords.ScryptCost, "derive", derive)
    return noted


@pytest.fixture
async def noting(metadata_url: str) -> AsyncIterator[World]:
    """Return a control plane whose statements are noted."""
    async with open_world(
        metadata_url, wrap=lambda database: cast("Database", NotingDatabase(database))
    ) as world:
        yield world


async def furnish(world: World) -> None:
    """Let people of other organizations have two of the addresses; one of them, two people."""
    other = await world.make("/v1/organizations", {"name": "Other"}, token="outsider")
    for email, organization in (
        (TAKEN, world.globex.organization_id),
        (SHARED, world.globex.organization_id),
        (SHARED, other["id"]),
    ):
        body = {"email": email, "organization": organization}
        await world.make("/v1/users", body, token="outsider")


def requests(world: World, email: str) -> Iterator[tuple[str, str, Any, str]]:
    """Yield all requests by which an address is told to an organization it is new to."""
    acme = world.acme.organization_id
    yield "POST", f"/v1/organizations/{acme}/invitations", {"email": email}, "person"
    yield "POST", f"/v1/roles/{world.acme.role_id}/assignments", {"user": email}, "admin"
    yield "POST", "/v1/users", {"email": email, "organization": acme}, "person"
    # From here on it has a person of the address.
    yield "POST", "/v1/users", {"email": email, "organization": acme}, "person"
    yield "POST", f"/v1/organizations/{acme}/invitations", {"email": email}, "person"
    yield "POST", f"/v1/roles/{world.acme.role_id}/assignments", {"user": email}, "admin"


@on_both_databases
async def test_addresses_of_others_are_as_those_of_nobody(
    noting: World, salts: list[bytes]
) -> None:
    await furnish(noting)
    database, seen = cast("NotingDatabase", noting.database), []
    for email in ("first@example.org", FREE, TAKEN, SHARED):
        told = []
        for method, path, body, token in requests(noting, email):
            database.noted.clear()
            salts.clear()
            answer = await noting.ask(method, path, body, token=token)
            text = _VARYING.sub("…", answer.text).replace(email, "…")
            headers = {
                name: _VARYING.sub("…", value)
                for name, value in answer.headers.items()
                if name != "x-request-id"
            }
            ran = [each.statement for each in database.noted]
            assert ran
            told.append((answer.status_code, text, headers, ran, len(salts)))
        assert [each[0] for each in told] == [201, 404, 201, 409, 409, 201]
        assert [each[-1] for each in told] == [0, 0, 1, 1, 0, 0]
        seen.append(told)
    # The first address is there so that the caches are warm for the others.
    assert seen[1] == seen[2] == seen[3]


@on_both_databases
async def test_wrong_codes_take_the_same_statements(noting: World) -> None:
    await noting.person("guest")
    await noting.accept("ein_guess", token="guest")  # opens the window of what is counted
    await noting.invite("guest@example.org")
    database, seen = cast("NotingDatabase", noting.database), []
    for organization in (noting.acme.organization_id, noting.globex.organization_id, uuid7()):
        database.noted.clear()
        answer = await noting.accept("ein_guess", token="guest", organization=organization)
        assert answer.status_code == 404
        seen.append([each.statement for each in database.noted])
    assert len(seen[0]) > 5
    assert seen[0] == seen[1] == seen[2]


async def test_people_of_an_address_share_the_salt(identity: World, salts: list[bytes]) -> None:
    await furnish(identity)
    one, two = await identity.database.read(list_users_by_email, SHARED)
    assert salt_of(one.password) == salt_of(two.password)
    own = {"email": SHARED, "organization": identity.acme.organization_id}
    made = await identity.make("/v1/users", own, token="person")
    assignments = f"/v1/roles/{identity.acme.role_id}/assignments"
    assigned = await identity.make(assignments, {"user": SHARED})
    assert assigned["user"]["id"] == made["id"], "that of the organization"
    (other,) = await identity.database.read(list_users_by_email, TAKEN)
    assert salt_of(other.password) != salt_of(one.password)
    assert salt_of(other.password) == first_salt(identity.keyring, TAKEN)
    assert len(salt_of(one.password)) == SALT_BYTES
    # Who had the address before salts were shared keeps the salt, and gives it to the others.
    body = {"email": "outsider@example.org", "organization": identity.acme.organization_id}
    await identity.make("/v1/users", body, token="person")
    kept = await identity.database.read(list_users_by_email, "outsider@example.org")
    assert {salt_of(each.password) for each in kept} == {salt_of(KEPT_PASSWORD)}
    assert len(kept) == 2

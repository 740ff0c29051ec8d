"""Nobody is told whether people of other organizations have an address: equal answers and work."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import pytest

from cloudcore.clock import uuid7
from cloudcore.db.base import Database
from cloudcore.iam import passwords
from cloudcore.iam.passwords import SALT_BYTES, salt_of
from cloudcore.identity.rows.users import list_users_by_email
from cloudcore.identity.services.users import first_salt
from tests.identity_world import KEPT_PASSWORD, World, open_world
from tests.integration.noting_database import NotingDatabase

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
async def noting(sqlite_database: str) -> AsyncIterator[World]:
    """Return a control plane whose statements are noted."""
    async with open_world(
        sqlite_database, wrap=lambda database: cast("Database", NotingDatabase(database))
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


async def test_a_role_is_assigned_to_the_member_of_an_address(identity: World) -> None:
    for organization, by in (
        (identity.globex.organization_id, "outsider"),
        (identity.acme.organization_id, "person"),
    ):
        body = {"email": SHARED, "organization": organization}
        made = await identity.make("/v1/users", body, token=by)
    assignments = f"/v1/roles/{identity.acme.role_id}/assignments"
    assigned = await identity.make(assignments, {"user": SHARED})
    assert assigned["user"]["id"] == made["id"]

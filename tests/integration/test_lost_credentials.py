"""Whom the host's owner means by an address or a name, and which keys a program has after it."""

from __future__ import annotations

import pytest

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, NotFound
from cloudcore.identity.recovery import add_key, find_person_by_email, find_program, reset_password
from cloudcore.identity.rows.organizations import ORGANIZATIONS, Organization
from cloudcore.identity.rows.service_accounts import ACCESS_KEYS
from cloudcore.identity.rows.users import User
from cloudcore.identity.services.service_accounts import MAX_ACTIVE, new_access_key
from cloudcore.identity.services.users import create_user
from tests.databases import on_both_databases
from tests.integration.oauth_world import Program, World

ANN = "ann@example.com"


async def test_a_person_is_found_by_the_address_and_by_the_organization(oauth: World) -> None:
    find = find_person_by_email
    with pytest.raises(NotFound, match="no person has the address"):
        await oauth.database.read(find, ANN, None)
    alone = await oauth.add_user(ANN)
    assert (await oauth.database.read(find, ANN, None)).id == alone.id
    other = Organization(uuid7(), "Other", 1, 1)
    made = User(uuid7(), ANN, alone.password, uuid7(), 1, 1, must_change_password=False)

    def add(tx: Connection) -> User:
        ORGANIZATIONS.add(tx, other)
        return create_user(tx, other.id, made)

    member = await oauth.database.write(add)
    with pytest.raises(Conflict, match="2 persons have the address") as several:
        await oauth.database.read(find, ANN, None)
    assert f"{other.id}  Other" in str(several.value)
    assert f"{alone.organization_id}  none but its own" in str(several.value)
    assert (await oauth.database.read(find, ANN, other.id)).id == member.id
    assert (await oauth.database.read(find, ANN, alone.organization_id)).id == alone.id
    with pytest.raises(NotFound, match="no person of the organization"):
        await oauth.database.read(find, ANN, uuid7())


async def test_nobody_gets_no_password(oauth: World) -> None:
    with pytest.raises(NotFound, match="person"):
        await oauth.database.write(reset_password, uuid7(), "kept", oauth.now, resumes=False)


@on_both_databases
async def test_a_program_is_found_by_its_name_and_by_its_account(oauth: World) -> None:
    with pytest.raises(NotFound, match=r"there is no account$"):
        await oauth.database.read(find_program, None, "ci")
    acme = await oauth.add_account("acme")
    program = await oauth.add_program(acme)
    for handle in (None, "acme"):
        account, found = await oauth.database.read(find_program, handle, "ci")
        assert (account.id, found.id) == (acme.id, program.id)
    with pytest.raises(NotFound, match="there is no account absent"):
        await oauth.database.read(find_program, "absent", "ci")
    with pytest.raises(NotFound, match="the account acme has no service account cd"):
        await oauth.database.read(find_program, "acme", "cd")
    await oauth.add_account("other")
    with pytest.raises(Conflict, match="there are several accounts"):
        await oauth.database.read(find_program, None, "ci")
    for what, table in (("service account", "service_accounts"), ("account", "accounts")):
        await oauth.run(f"UPDATE {table} SET status = 'suspended'")
        with pytest.raises(Conflict, match=f"the {what} is suspended"):
            await oauth.database.read(find_program, "acme", "ci")


async def test_a_key_is_added_or_replaces_the_others(oauth: World) -> None:
    acme = await oauth.add_account("acme")
    program = await oauth.add_program(acme)
    for _ in range(MAX_ACTIVE - 1):
        await add(oauth, program, replaces=False)
    with pytest.raises(Conflict, match="add --replace to delete them"):
        await add(oauth, program, replaces=False)
    assert len(await keys(oauth, program)) == MAX_ACTIVE
    last = await add(oauth, program, replaces=True)
    assert await keys(oauth, program) == [last]


async def add(oauth: World, program: Program, *, replaces: bool) -> str:
    """Add a key to a program, and return its id."""
    key, key_id = new_access_key(), uuid7()

    def change(tx: Connection) -> None:
        _, found = find_program(tx, None, "ci")
        add_key(tx, oauth.keyring, key, key_id, found, oauth.now, replaces=replaces)

    await oauth.database.write(change)
    return key_id


async def keys(oauth: World, program: Program) -> list[str]:
    found = await oauth.database.read(
        ACCESS_KEYS.list, (program.account.id, program.id), "", "", 99
    )
    return [each.id for each in found]

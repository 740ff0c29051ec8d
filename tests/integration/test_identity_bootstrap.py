"""The first account of an install."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest
from sqlalchemy import select

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.db.schema import metadata
from cloudcore.db.statement import Statement
from cloudcore.errors import AccessDenied, Conflict, InvalidInput
from cloudcore.iam.decision import Caller, Question, decide
from cloudcore.iam.passwords import match_passwords
from cloudcore.iam.policy import PolicyKind, policy_of
from cloudcore.iam.principal import Principal, PrincipalKind
from cloudcore.identity.bootstrap import FirstCredentials, create_first_account
from cloudcore.identity.oauth.sessions import CodeDestination, new_code
from cloudcore.identity.oidc.id_tokens import Profile
from cloudcore.identity.rights.permissions import load_policies
from cloudcore.identity.rows.accounts import find_account
from cloudcore.identity.rows.identity_providers import (
    IDENTITY_PROVIDERS,
    IdentityProvider,
    find_person_of_subject,
)
from cloudcore.identity.rows.organizations import JOINED
from cloudcore.identity.rows.roles import ASSIGNMENTS, ROLES
from cloudcore.identity.rows.service_accounts import ACCESS_KEYS, SERVICE_ACCOUNTS
from cloudcore.identity.rows.users import list_users_by_email
from cloudcore.identity.services.provider_sign_ins import sign_in
from cloudcore.keyring import Keyring
from tests.control_plane import count_rows
from tests.databases import opened
from tests.dying import Kind, PassingDatabase

pytestmark = pytest.mark.usefixtures("cheap_passwords")
KEYRING = Keyring(b"k" * 32)


async def begin(database: Database, **given: str) -> FirstCredentials:
    values: dict[str, Any] = {"handle": "acme", "email": "Ada@Example.org"} | given
    return await create_first_account(database, KEYRING, uuid7, 1_000, **values)


def count_all(tx: Connection) -> int:
    """Return how many rows all tables have together."""
    tables = metadata.sorted_tables
    return sum(len(tx.rows(Statement(select(table)))) for table in tables)


async def test_one_command_makes_an_owner_who_can_do_everything(database: Database) -> None:
    made = await begin(database)
    account = await database.read(find_account, made.account_id)
    assert account is not None
    assert account.handle == "acme"
    (person,) = await database.read(list_users_by_email, "ada@example.org")
    assert person.must_change_password
    assert match_passwords(made.one_time_password, [person.password]) == [True]
    joined = await database.read(JOINED.list, person.id, "", "", 10)
    assert {each.is_personal for each in joined} == {True, False}
    assert {each.role for each in joined} == {"owner"}
    shared = {each.id for each in joined if not each.is_personal}
    assert {person.home_organization_id} == shared

    role = await database.read(ROLES.find_named, account.id, "admin")
    assert role is not None
    assert await database.read(ASSIGNMENTS.find, role.id, person.id)
    trust = policy_of(json.loads(role.trust_policy), PolicyKind.TRUST)
    crn = f"crn:iam::{person.organization_id}:user/{person.id}"
    assert trust.statements[0].principals == {crn}

    program = await database.read(SERVICE_ACCOUNTS.find_named, account.id, "admin")
    assert program is not None
    (key,) = await database.read(ACCESS_KEYS.list, (account.id, program.id), "", "", 10)
    assert key.access_key_id == made.access_key_id
    context = f"access-key:{made.access_key_id}"
    assert KEYRING.open(bytes(key.secret_sealed), context).decode() == made.secret_access_key
    for kind, identity in (
        (PrincipalKind.ROLE_SESSION, role.id),
        (PrincipalKind.SERVICE_ACCOUNT, program.id),
    ):
        principal = Principal(kind, identity, "crn", account.id, None, None, "jti", 0)
        policies = await database.read(load_policies, principal)
        resource = f"crn:registry:eu:{account.id}:repository/x"
        caller = Caller("crn", account.id)
        question = Question(caller, "registry:PutImage", resource, account.id, None, 0)
        assert decide(question, policies).is_allowed


async def test_it_refuses_a_second_time_and_changes_nothing(database: Database) -> None:
    await begin(database)
    before = await database.read(count_all)
    with pytest.raises(Conflict):
        await begin(database, handle="other", email="eve@example.org")
    assert await database.read(count_all) == before


async def test_names_that_cannot_be_are_refused(database: Database) -> None:
    for name, values in (
        ("handle", ("A", "a", "a--b", "x" * 33, "acme\n")),
        ("email", ("ada", "a@b\n", "a b@example.org", "@example.org")),
    ):
        for value in values:
            with pytest.raises(InvalidInput):
                await begin(database, **{name: value})
    assert await database.read(count_all) == 0


async def test_no_provider_signs_the_first_person_in(database: Database) -> None:
    """The last way into an install is a password, whatever a provider says of the address."""
    await begin(database)
    (person,) = await database.read(list_users_by_email, "ada@example.org")
    joined = await database.read(JOINED.list, person.id, "", "", 10)
    (main,) = [each.id for each in joined if not each.is_personal]
    provider = IdentityProvider(
        id=uuid7(),
        organization_id=main,
        name="Login",
        issuer="https://login.example.org",
        client_id="entrepot",
        client_secret_sealed=None,
        scopes="openid",
        groups_claim="groups",
        email_verified_claim="email_verified",
        email_domains="example.org",
        creates_people=True,
        status="active",
        created_at=1_000,
        updated_at=1_000,
    )
    assert await database.write(IDENTITY_PROVIDERS.add, provider)
    profile = Profile("subject", "ada@example.org", frozenset())
    code = new_code("", CodeDestination("cli", "oob"), "x" * 43, 2_000)[1]
    with pytest.raises(AccessDenied, match="sign in with the password"):
        await database.write(sign_in, KEYRING, provider.id, profile, uuid7, code, 2_000)
    assert await database.read(find_person_of_subject, provider.id, "subject") is None


RIVALS = 4


class MeetingDatabase(PassingDatabase):
    """Holds a change back until all rivals have come with theirs."""

    def __init__(self, database: Database, meeting: asyncio.Barrier) -> None:
        super().__init__(database)
        self._meeting = meeting

    async def before(self, kind: Kind, _call: object) -> None:
        if kind == "write":
            await self._meeting.wait()


async def test_rivals_make_one_first_account(database_url: str) -> None:
    """No row of theirs is the same, so nothing but the lock stands between them."""

    async def race(database: Database, rival: int) -> FirstCredentials | Conflict:
        keyring = Keyring(bytes([rival]) * 32)
        names = {"handle": f"rival-{rival}", "email": f"rival-{rival}@example.org"}
        try:
            return await create_first_account(database, keyring, uuid7, 1_000, **names)
        except Conflict as refused:
            return refused

    meeting = asyncio.Barrier(RIVALS)
    async with AsyncExitStack() as stack:
        databases = [await stack.enter_async_context(opened(database_url)) for _ in range(RIVALS)]
        met = [MeetingDatabase(database, meeting) for database in databases]
        outcomes = await asyncio.gather(*map(race, met, range(RIVALS)))
    assert Counter(map(type, outcomes)) == {Conflict: RIVALS - 1, FirstCredentials: 1}
    for table in ("accounts", "users", "access_keys"):
        assert count_rows(database_url, table) == 1

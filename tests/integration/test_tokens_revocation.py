"""The ways to revoke: five minutes after any of them, nothing succeeds any more.

Each way takes something away from a program that could pull; a disabled key of encryption is the
one that waits for encryption. The clock is the test's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import pytest

from cloudcore.identity.rows.sessions import revoke_session
from cloudcore.identity.rows.sign_ins import revoke_login
from cloudcore.identity.services import policies, roles, service_accounts
from registry.metadata.logins import find_login
from registry.metadata.repositories.policies import remove_policy
from registry.services.access.logins import hash_of
from registry.services.repositories.details import delete_repository
from tests.tenants import (
    ALLOW_ALL,
    Install,
    Program,
    allow,
    basic,
    bearer,
    deny,
    document,
    let,
    refuse,
)

PULL: Final = "repository:acme/r:pull"
TOKEN: Final = f"/v2/token?scope={PULL}"


class Given(NamedTuple):
    """What there is to take away from."""

    program: Program
    repository_id: str
    password: str


Way = Callable[[Install, Given], Awaitable[object]]


async def detach(install: Install, given: Given) -> None:
    who = given.program
    await install.database.write(
        policies.detach_policy, who.account.id, who.policy_id, who.attachment_id
    )


async def add_deny(install: Install, given: Given) -> None:
    await install.say(given.program, ALLOW_ALL, deny("registry:PullImage"))


async def edit_policy(install: Install, given: Given) -> None:
    account = given.program.account
    await install.share(given.repository_id, account, refuse(account.id))


async def delete_key(install: Install, given: Given) -> None:
    who = given.program
    assert who.key_id is not None
    await install.database.write(
        service_accounts.delete_access_key, who.account.id, who.id, who.key_id
    )


async def disable_key(install: Install, given: Given) -> None:
    who = given.program
    assert who.key_id is not None
    await install.database.write(
        service_accounts.update_access_key,
        who.account.id,
        who.id,
        who.key_id,
        {"status": "inactive"},
        install.clock(),
    )


async def let_key_expire(install: Install, given: Given) -> None:
    who, now = given.program, install.clock()
    assert who.key_id is not None
    await install.database.write(
        service_accounts.update_access_key,
        who.account.id,
        who.id,
        who.key_id,
        {"expires_at": now},
        now,
    )


async def suspend_program(install: Install, given: Given) -> None:
    who = given.program
    await install.database.write(
        service_accounts.update_service_account,
        who.account.id,
        who.id,
        {"status": "suspended"},
        install.clock(),
    )


async def delete_program(install: Install, given: Given) -> None:
    who = given.program
    await install.database.write(service_accounts.delete_service_account, who.account.id, who.id)


async def suspend_account(install: Install, given: Given) -> None:
    await install.suspend_account(given.program.account)


async def delete_repo(install: Install, given: Given) -> None:
    account_id = given.program.account.id
    await install.database.write(
        delete_repository, account_id, given.repository_id, install.ctx.change_by(""), force=True
    )


async def delete_login(install: Install, given: Given) -> None:
    login = await install.database.read(find_login, hash_of(given.password), install.clock())
    assert login is not None
    await install.database.write(revoke_login, login.id, install.clock())


async def end_session(install: Install, given: Given) -> None:
    assert given.program.sid is not None
    await install.database.write(revoke_session, given.program.sid, install.clock())


async def delete_role(install: Install, given: Given) -> None:
    who = given.program
    await install.database.write(roles.delete_role, who.account.id, who.id)


async def change_trust(install: Install, given: Given) -> None:
    who = given.program
    nobody = {"effect": "deny", "principals": [who.account.id]}
    await install.database.write(
        roles.update_role,
        who.account.id,
        who.id,
        {"trust_policy": document(nobody)},
        install.clock(),
    )


OF_PROGRAMS: Final[list[Way]] = [
    detach,
    add_deny,
    edit_policy,
    delete_key,
    disable_key,
    let_key_expire,
    suspend_program,
    delete_program,
    suspend_account,
    delete_repo,
    delete_login,
]
OF_SESSIONS: Final[list[Way]] = [
    detach,
    add_deny,
    end_session,
    delete_role,
    change_trust,
    suspend_account,
    delete_login,
]


async def check(install: Install, given: Given, way: Way) -> None:
    """Take something away and see that all successes are over within five minutes."""
    old = await install.exchange(given.password, PULL)
    path = "/v2/acme/r/tags/list"
    async with install.connect() as client:
        assert (await client.get(path, headers=bearer(old))).status_code == 200
        await way(install, given)
        begun = install.clock.now
        granted = 0
        # A client that never gives up: it asks for a new token whenever it can.
        for second in (0, 1, 60, 150, 299, 301, 310, 600, 3600):
            install.clock.now = begun + second * 1_000_000
            answer = await client.get(
                "/v2/token", params={"scope": PULL}, headers=basic(given.password)
            )
            tokens = [old]
            if answer.status_code == 200:
                tokens.append(answer.json()["token"])
            for token in tokens:
                got = await client.get(path, headers=bearer(token))
                assert got.status_code in (200, 401, 403, 404)
                granted += got.status_code == 200
                assert got.status_code != 200 or second <= 300
        fresh = await client.get(TOKEN, headers=basic(given.password))
        if fresh.status_code == 200 and way is not delete_repo:
            token = fresh.json()["token"]
            assert (await client.get(path, headers=bearer(token))).status_code == 403
        assert way is delete_repo or granted, "the old token did not last: the test shows nothing"


@pytest.mark.parametrize("way", OF_PROGRAMS, ids=lambda way: way.__name__)
async def test_a_service_account_loses_its_pull(install: Install, way: Way) -> None:
    account = await install.add_account("acme")
    repository_id = await install.add_repository(account, "r")
    program = await install.add_program(account, "ci", ALLOW_ALL)
    given = Given(program, repository_id, await install.login(program))
    await check(install, given, way)


@pytest.mark.parametrize("way", OF_SESSIONS, ids=lambda way: way.__name__)
async def test_a_role_session_loses_its_pull(install: Install, way: Way) -> None:
    account = await install.add_account("acme")
    repository_id = await install.add_repository(account, "r")
    source = await install.add_program(account, "ci", allow("iam:AssumeRole"))
    session = await install.add_role_session(account, "deploy", ALLOW_ALL, source=source)
    given = Given(session, repository_id, await install.login(session))
    await check(install, given, way)


@pytest.mark.parametrize("way", [delete_key, disable_key, delete_program])
async def test_a_role_session_ends_with_the_key_that_assumed_it(install: Install, way: Way) -> None:
    account = await install.add_account("acme")
    repository_id = await install.add_repository(account, "r")
    source = await install.add_program(account, "ci", allow("iam:AssumeRole"))
    session = await install.add_role_session(account, "deploy", ALLOW_ALL, source=source)
    password = await install.login(session)

    async def of_source(install: Install, given: Given) -> None:
        await way(install, given._replace(program=source))

    await check(install, Given(session, repository_id, password), of_source)


@pytest.mark.parametrize("what", ["edited", "deleted", "denied"])
async def test_a_partner_loses_its_pull_with_the_policy(install: Install, what: str) -> None:
    acme = await install.add_account("acme")
    partner = await install.add_account("partner")
    repository_id = await install.add_repository(acme, "r", let("partner"))
    program = await install.add_program(partner, "ci", ALLOW_ALL)

    async def change(install: Install, given: Given) -> None:
        del given
        if what == "deleted":
            await install.database.write(remove_policy, repository_id)
        elif what == "edited":
            await install.share(repository_id, acme, let("acme"))
        else:
            await install.share(repository_id, acme, let("partner"), refuse("*"))

    await check(install, Given(program, repository_id, await install.login(program)), change)

"""The ways to revoke: five minutes after any of them, nothing succeeds any more.

Each way takes something away from a program that could pull; a disabled key of encryption is the
one that waits for encryption. The clock is the test's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import pytest

from cloudcore.identity.rows.issued_tokens import revoke_login
from cloudcore.identity.rows.sessions import revoke_session
from cloudcore.identity.services import policies, roles, service_accounts
from registry.metadata.logins import find_login
from registry.metadata.repositories.policies import remove_resource_policy
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

    @property
    def account_id(self) -> str:
        return self.program.account.id

    @property
    def key(self) -> tuple[tuple[str, str], str]:
        """Return what names the access key of the program."""
        assert self.program.key_id is not None
        return (self.account_id, self.program.id), self.program.key_id


Way = Callable[[Install, Given], Awaitable[object]]


async def delete_login(install: Install, given: Given) -> None:
    login = await install.database.read(find_login, hash_of(given.password), install.clock())
    assert login is not None
    await install.database.write(revoke_login, login.id, install.clock())


def change_key(**changes: object) -> Way:
    """Return the way that changes the access key of the program."""
    return lambda i, g: i.database.write(
        service_accounts.update_access_key, *g.key, changes, i.clock()
    )


OF_BOTH: Final[dict[str, Way]] = {
    "detach": lambda i, g: i.database.write(
        policies.detach_policy, g.account_id, g.program.policy_id, g.program.attachment_id
    ),
    "add_deny": lambda i, g: i.say(g.program, ALLOW_ALL, deny("registry:PullImage")),
    "suspend_account": lambda i, g: i.suspend_account(g.program.account),
    "delete_login": delete_login,
}
OF_KEYS: Final[dict[str, Way]] = {
    "delete_key": lambda i, g: i.database.write(service_accounts.delete_access_key, *g.key),
    "disable_key": change_key(status="inactive"),
    "delete_program": lambda i, g: i.database.write(
        service_accounts.delete_service_account, g.account_id, g.program.id
    ),
}
OF_PROGRAMS: Final[dict[str, Way]] = {
    **OF_BOTH,
    **OF_KEYS,
    "edit_policy": lambda i, g: i.share(g.repository_id, g.program.account, refuse(g.account_id)),
    "let_key_expire": lambda i, g: change_key(expires_at=i.clock())(i, g),
    "suspend_program": lambda i, g: i.database.write(
        service_accounts.update_service_account,
        g.account_id,
        g.program.id,
        {"status": "suspended"},
        i.clock(),
    ),
    "delete_repository": lambda i, g: i.database.write(
        delete_repository, g.account_id, g.repository_id, i.ctx.change_by(""), force=True
    ),
}
OF_SESSIONS: Final[dict[str, Way]] = {
    **OF_BOTH,
    "end_session": lambda i, g: i.database.write(revoke_session, g.program.sid or "", i.clock()),
    "delete_role": lambda i, g: i.database.write(roles.delete_role, g.account_id, g.program.id),
    "change_trust": lambda i, g: i.database.write(
        roles.update_role,
        g.account_id,
        g.program.id,
        {"trust_policy": document({"effect": "deny", "principals": [g.account_id]})},
        i.clock(),
    ),
}


async def check(
    install: Install, given: Given, way: Way, *, leaves_repository: bool = True
) -> None:
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
        if fresh.status_code == 200 and leaves_repository:
            token = fresh.json()["token"]
            assert (await client.get(path, headers=bearer(token))).status_code == 403
        assert granted or not leaves_repository, "the old token did not last: nothing is shown"


@pytest.mark.parametrize("way", OF_PROGRAMS)
async def test_a_service_account_loses_its_pull(install: Install, way: str) -> None:
    account = await install.add_account("acme")
    repository_id = await install.add_repository(account, "r")
    program = await install.add_program(account, "ci", ALLOW_ALL)
    given = Given(program, repository_id, await install.login(program))
    leaves = way != "delete_repository"
    await check(install, given, OF_PROGRAMS[way], leaves_repository=leaves)


@pytest.mark.parametrize("way", [*OF_SESSIONS, *OF_KEYS])
async def test_a_role_session_loses_its_pull(install: Install, way: str) -> None:
    """By what is its own, and by the access key that assumed it."""
    account = await install.add_account("acme")
    repository_id = await install.add_repository(account, "r")
    source = await install.add_program(account, "ci", allow("iam:AssumeRole"))
    session = await install.add_role_session(account, "deploy", ALLOW_ALL, source=source)
    given = Given(session, repository_id, await install.login(session))

    async def of_source(install: Install, given: Given) -> None:
        await OF_KEYS[way](install, given._replace(program=source))

    await check(install, given, OF_SESSIONS.get(way, of_source))


@pytest.mark.parametrize("what", ["edited", "deleted", "denied"])
async def test_a_partner_loses_its_pull_with_the_policy(install: Install, what: str) -> None:
    acme = await install.add_account("acme")
    partner = await install.add_account("partner")
    repository_id = await install.add_repository(acme, "r", let("partner"))
    program = await install.add_program(partner, "ci", ALLOW_ALL)

    async def change(install: Install, given: Given) -> None:
        del given
        if what == "deleted":
            await install.database.write(remove_resource_policy, repository_id)
        elif what == "edited":
            await install.share(repository_id, acme, let("acme"))
        else:
            await install.share(repository_id, acme, let("partner"), refuse("*"))

    await check(install, Given(program, repository_id, await install.login(program)), change)

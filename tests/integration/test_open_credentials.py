"""An account has so many logins and role sessions open; none is ended for another."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from cloudcore.clock import uuid7
from cloudcore.db.statement import Statement
from cloudcore.errors import QuotaExceeded
from cloudcore.iam.principal import Principal, PrincipalKind
from cloudcore.identity import assume_role
from cloudcore.identity.rows import sessions as session_rows
from registry.metadata import logins as login_rows
from registry.services import logins
from registry.services.logins import LOGIN_SECONDS, hash_of, mint_login, new_password
from tests.integration.oauth_world import Program, World, may, play

CAP = 3


def principal_of(program: Program) -> Principal:
    return Principal(
        PrincipalKind.SERVICE_ACCOUNT,
        program.id,
        program.crn,
        program.account.id,
        None,
        None,
        uuid7(),
        1 << 60,
        program.key_id,
    )


def test_logins_are_capped(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "MAX_OPEN", CAP)

    async def scenario(world: World) -> None:
        ci = principal_of(await world.add_program(await world.add_account("acme")))
        other = principal_of(await world.add_program(await world.add_account("other")))

        async def mint(whom: Principal) -> str:
            password = new_password()
            await world.database.write(mint_login, whom, uuid7(), password, world.now)
            return password

        passwords = [await mint(ci) for _ in range(CAP)]
        with pytest.raises(QuotaExceeded) as refused:
            await mint(ci)
        assert refused.value.params == {"quota": "logins", "limit": CAP, "used": CAP}
        assert "/v1/oauth/revoke" in refused.value.message
        for password in passwords:
            found = await world.database.read(login_rows.find_login, hash_of(password), world.now)
            assert found is not None
        await mint(other)
        assert await world.revoke(passwords[0]) == 200
        await mint(ci)
        with pytest.raises(QuotaExceeded):
            await mint(ci)
        world.pass_time(LOGIN_SECONDS)
        await mint(ci)

    play(database_url, scenario)


def test_role_sessions_are_capped(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assume_role, "MAX_OPEN", CAP)

    async def scenario(world: World) -> None:
        acme, other = await world.add_account("acme"), await world.add_account("other")
        ci = await world.add_program(acme, "ci", may("iam:AssumeRole"))
        one, two = (
            await world.add_role(acme, "one", ci.crn),
            await world.add_role(acme, "two", ci.crn),
        )
        elsewhere = await world.add_role(other, "three", ci.crn)
        token = await world.token_of(ci, duration_seconds="43200")
        made = [await world.assume(token, role.id) for role in (one, one, two)]
        assert [answer.status_code for answer in made] == [200] * CAP
        for role in (one, two):
            refused = await world.assume(token, role.id)
            assert refused.status_code == 403
            error = refused.json()["error"]
            assert error["code"] == "QUOTA_EXCEEDED"
            assert error["params"] == {"quota": "role_sessions", "limit": CAP, "used": CAP}
        assert (await world.assume(token, elsewhere.id)).status_code == 200
        for answer in made:
            assert (await world.who(answer.json()["access_token"])).status_code == 200
        assert await world.revoke(made[0].json()["session_token"]) == 200
        assert (await world.assume(token, two.id)).status_code == 200
        assert (await world.assume(token, two.id)).status_code == 403
        world.pass_time(3600)
        assert (await world.assume(token, two.id)).status_code == 200

    play(database_url, scenario)


@pytest.mark.parametrize(
    "statement", [login_rows._COUNT_OPEN, session_rows._COUNT_OPEN], ids=["logins", "sessions"]
)
def test_counting_reads_an_index_alone_and_ends_at_the_cap(
    sqlite_database: str, statement: Statement
) -> None:
    with closing(sqlite3.connect(sqlite_database.removeprefix("sqlite:///"))) as raw:
        given = {"account_id": "", "now": 0, "limit": 1}
        plan = raw.execute(f"EXPLAIN QUERY PLAN {statement.sqlite}", given).fetchall()
    details = [row[3] for row in plan]
    (searched,) = [each for each in details if "expires_at>?" in each]
    assert "COVERING INDEX" in searched
    assert "LIMIT" in statement.sqlite

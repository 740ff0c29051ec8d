"""An account has so many logins and role sessions open; none is ended for another."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from contextlib import closing
from typing import Any

import pytest

from cloudcore.clock import uuid7
from cloudcore.db.statement import Statement
from cloudcore.errors import QuotaExceeded
from cloudcore.iam.principal import Principal, PrincipalKind
from cloudcore.identity.rows import sessions as session_rows
from cloudcore.quotas.limits import EVERY_ACCOUNT, put_limit
from cloudcore.serving.asgi import Receive, Scope, Send
from registry.metadata import logins as login_rows
from registry.services.access.logins import LOGIN_SECONDS, hash_of, mint_login, new_password
from tests.databases import on_both_databases
from tests.integration.oauth_world import Program, World, may

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


async def test_logins_are_capped(oauth: World) -> None:
    await oauth.database.write(put_limit, EVERY_ACCOUNT, "logins", CAP, oauth.now)

    ci = principal_of(await oauth.add_program(await oauth.add_account("acme")))
    other = principal_of(await oauth.add_program(await oauth.add_account("other")))

    async def mint(whom: Principal) -> str:
        password = new_password()
        await oauth.database.write(mint_login, whom, uuid7(), password, oauth.now)
        return password

    passwords = [await mint(ci) for _ in range(CAP)]
    with pytest.raises(QuotaExceeded) as refused:
        await mint(ci)
    assert refused.value.params == {"quota": "logins", "limit": CAP, "used": CAP}
    assert "/v1/oauth/revoke" in refused.value.message
    for password in passwords:
        found = await oauth.database.read(login_rows.find_login, hash_of(password), oauth.now)
        assert found is not None
    await mint(other)
    assert await oauth.revoke(passwords[0]) == 200
    await mint(ci)
    with pytest.raises(QuotaExceeded):
        await mint(ci)
    oauth.pass_time(LOGIN_SECONDS)
    await mint(ci)


def events_of(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the event, to be counted, of each answer from now on."""
    events: list[str] = []
    app: Any = world.app

    async def watched(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, send)
        events.append(scope["state"].get("event", ""))

    monkeypatch.setattr(world, "app", watched)
    return events


async def test_role_sessions_are_capped(oauth: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await oauth.database.write(put_limit, EVERY_ACCOUNT, "role_sessions", CAP, oauth.now)

    acme, other = await oauth.add_account("acme"), await oauth.add_account("other")
    ci = await oauth.add_program(acme, "ci", may("iam:AssumeRole"))
    one, two = (
        await oauth.add_role(acme, "one", ci.crn),
        await oauth.add_role(acme, "two", ci.crn),
    )
    elsewhere = await oauth.add_role(other, "three", ci.crn)
    token = await oauth.token_of(ci, duration_seconds="43200")
    events = events_of(oauth, monkeypatch)
    made = [await oauth.assume(token, role.id) for role in (one, one, two)]
    assert events == ["", "", ""]
    assert [answer.status_code for answer in made] == [200] * CAP
    for role in (one, two):
        refused = await oauth.assume(token, role.id)
        assert refused.status_code == 403
        error = refused.json()["error"]
        assert error["code"] == "QUOTA_EXCEEDED"
        assert error["params"] == {"quota": "role_sessions", "limit": CAP, "used": CAP}
    assert events[CAP:] == ["quota.role_sessions"] * 2
    assert (await oauth.assume(token, elsewhere.id)).status_code == 200
    for answer in made:
        assert (await oauth.who(answer.json()["access_token"])).status_code == 200
    assert await oauth.revoke(made[0].json()["session_token"]) == 200
    assert (await oauth.assume(token, two.id)).status_code == 200
    assert (await oauth.assume(token, two.id)).status_code == 403
    oauth.pass_time(3600)
    assert (await oauth.assume(token, two.id)).status_code == 200


@on_both_databases
async def test_logins_and_sessions_that_race_stay_within_the_limit(oauth: World) -> None:
    acme = await oauth.add_account("acme")
    ci = await oauth.add_program(acme, "ci", may("iam:AssumeRole"))
    role = await oauth.add_role(acme, "one", ci.crn)
    token = await oauth.token_of(ci, duration_seconds="43200")
    for name in ("logins", "role_sessions"):
        await oauth.database.write(put_limit, acme.id, name, CAP, oauth.now)

    async def mint() -> int:
        try:
            await oauth.database.write(
                mint_login, principal_of(ci), uuid7(), new_password(), oauth.now
            )
        except QuotaExceeded:
            return 403
        return 200

    async def assume() -> int:
        return (await oauth.assume(token, role.id)).status_code

    for racer in (mint, assume):
        found = Counter(await asyncio.gather(*(racer() for _ in range(16))))
        assert found == {200: CAP, 403: 16 - CAP}, racer


@pytest.mark.parametrize(
    "statement",
    [login_rows.OPEN.statement, session_rows.OPEN.statement],
    ids=["logins", "sessions"],
)
def test_counting_reads_an_index_alone_and_ends_at_the_cap(
    sqlite_database: str, statement: Statement
) -> None:
    with closing(sqlite3.connect(sqlite_database.removeprefix("sqlite:///"))) as raw:
        given = {"account_id": "", "now": 0}
        plan = raw.execute(f"EXPLAIN QUERY PLAN {statement.sqlite}", given).fetchall()
    details = [row[3] for row in plan]
    (searched,) = [each for each in details if "expires_at>?" in each]
    assert "COVERING INDEX" in searched
    assert "LIMIT" in statement.sqlite

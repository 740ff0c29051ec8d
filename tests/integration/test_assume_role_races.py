"""A role that is assumed while its trust or assignment is taken away: the session ends with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.identity.rows.roles import ASSIGNMENTS, ROLES, Assignment, lock_assignment
from cloudcore.identity.rows.sessions import Session, add_session, find_live_session
from cloudcore.identity.services.roles import update_role
from tests.databases import on_both_databases
from tests.dying import PassingConnection
from tests.integration.oauth_world import World, may
from tests.waiting import until_so


class Between(PassingConnection):
    """A connection of a change; before one of its statements another change comes in."""

    def __init__(
        self, tx: Connection, before: Statement, other: Callable[[Connection], object]
    ) -> None:
        super().__init__(tx)
        self._before = before
        self._other = other

    def before(self, statement: Statement, _parameters: object) -> None:
        if statement is self._before:
            self._other(self._connection)


@on_both_databases
async def test_a_session_by_the_old_trust_ends_with_it(oauth: World) -> None:
    """Until the role's row is written, others still assume the role by what it was."""
    acme = await oauth.add_account("acme")
    role = await oauth.add_role(acme, "deploy", "acme")
    end = oauth.now + 3600 * MICROSECONDS
    session = Session(uuid7(), "role", oauth.now, end, role_id=role.id)
    denial = {"effect": "deny", "principals": ["*"]}
    trust: dict[str, Any] = {"version": "1", "statements": [denial]}

    def change(tx: Connection) -> None:
        between = Between(tx, ROLES.statements["save"], lambda other: add_session(other, session))
        update_role(between, acme.id, role.id, {"trust_policy": trust}, oauth.now)

    await oauth.database.write(change)
    assert await oauth.database.read(find_live_session, session.id, oauth.now) is None


@pytest.mark.postgresql
async def test_an_assignment_stays_until_the_session_for_it_is_there(
    oauth: World, postgresql_database: str
) -> None:
    """So whoever deletes it, and then ends its sessions, finds that session."""
    acme = await oauth.add_account("acme")
    role = await oauth.add_role(acme, "deploy", "acme")
    user = await oauth.add_user("ann@example.com")
    await oauth.database.write(ASSIGNMENTS.add, Assignment(role.id, user.id, oauth.now))

    def change(tx: Connection) -> None:
        lock_assignment(tx, role.id, user.id)
        with psycopg.connect(postgresql_database) as other:
            other.execute("SET lock_timeout = '50ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                other.execute("DELETE FROM role_assignments")

    await oauth.database.write(change)


_WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"


@pytest.mark.postgresql
@pytest.mark.parametrize(
    ("change", "status"),
    [
        ("UPDATE roles SET description = 'other'", 200),
        ("UPDATE roles SET trust_policy = replace(trust_policy, 'allow', 'deny')", 403),
        ("DELETE FROM sessions", 401),
    ],
)
async def test_a_role_is_assumed_beside_its_change_without_deadlock(
    oauth: World, postgresql_database: str, change: str, status: int
) -> None:
    """Both lock the account first; who waited for it decides by the role as it is then."""
    acme = await oauth.add_account("acme")
    ci = await oauth.add_program(acme, "ci", may("iam:AssumeRole"))
    role = await oauth.add_role(acme, "self", ci.crn, f"crn:iam::{acme.id}:role/self")
    await oauth.add_policy(acme, may("iam:AssumeRole"), role_id=role.id)
    token = (await oauth.assume(await oauth.token_of(ci), role.id)).json()["access_token"]
    with (
        psycopg.connect(postgresql_database) as other,
        psycopg.connect(postgresql_database, autocommit=True) as looks,
    ):
        other.execute("UPDATE accounts SET iam_revision = iam_revision + 1")
        assuming = asyncio.create_task(oauth.assume(token, role.id))
        await until_so(lambda: looks.execute(_WAITING).fetchall()[0][0])
        other.execute("SET lock_timeout = '50ms'")
        other.execute(change.encode())
        other.commit()
    assert (await assuming).status_code == status


@pytest.mark.postgresql
async def test_a_person_assumes_a_role_beside_the_end_of_a_provider_without_deadlock(
    oauth: World, postgresql_database: str
) -> None:
    """Both lock the assignment first, then the provider."""
    acme = await oauth.add_account("acme")
    user = await oauth.add_user("ann@example.com")
    role = await oauth.add_role(acme, "deploy", f"crn:iam::{user.organization_id}:user/{user.id}")
    await oauth.assign(role, user)
    person = await oauth.signed_in("ann@example.com")
    with (
        psycopg.connect(postgresql_database) as other,
        psycopg.connect(postgresql_database, autocommit=True) as looks,
    ):
        columns = (
            "name, issuer, client_id, groups_claim, email_verified_claim, scopes, email_domains"
        )
        other.execute(
            f"INSERT INTO identity_providers (id, organization_id, status, creates_people,"
            f" created_at, updated_at, {columns})"
            " VALUES ('idp', %s, 'active', true, 0, 0, '', '', '', '', '', '', '')".encode(),
            (user.organization_id,),
        )
        other.execute(
            "INSERT INTO provider_subjects (provider_id, subject, user_id, created_at)"
            " VALUES ('idp', 'ann', %s, 0)",
            (user.id,),
        )
        other.commit()
        other.execute("UPDATE role_assignments SET created_at = 0")
        assuming = asyncio.create_task(oauth.assume(person[0], role.id))
        await until_so(lambda: looks.execute(_WAITING).fetchall()[0][0])
        other.execute("SET lock_timeout = '50ms'")
        other.execute("UPDATE identity_providers SET updated_at = 1")
        other.commit()
    assert (await assuming).status_code == 200

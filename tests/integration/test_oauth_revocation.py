"""Ending tokens: by the endpoint, and by all they hang on (RFC 7009, rules I5, I6, G13, G14)."""

from __future__ import annotations

import string
from collections.abc import Awaitable, Callable
from hashlib import sha256

import pytest
from sqlalchemy import select

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.identity.rows import roles as role_rows
from cloudcore.identity.rows import service_accounts
from cloudcore.identity.rows.policies import detach
from cloudcore.identity.rows.sessions import revoke_sessions_of_assigned, revoke_sessions_of_role
from cloudcore.identity.services.users import change_password
from cloudcore.identity.sessions import forget_ended
from cloudcore.identity.tables import login_credentials
from tests.integration.oauth_world import CREDENTIALS, World, basic, may, play

EMAIL = "ann@example.com"
ALPHABET = string.ascii_letters + string.digits + "-_"


def spellings(token: str) -> list[str]:
    """Return every token that differs from this in its last character."""
    return [token[:-1] + last for last in ALPHABET]


def test_revoking_one_spelling_ends_them_all(database_url: str) -> None:
    """Rule I5, G13."""

    async def scenario(world: World) -> None:
        ci = await world.add_program(await world.add_account("acme"))
        for index in range(4):
            token = await world.token_of(ci)
            good = [twin for twin in spellings(token) if (await world.who(twin)).status_code == 200]
            assert len(good) == 16
            assert token in good
            assert await world.revoke(good[index]) == 200
            assert {(await world.who(twin)).status_code for twin in good} == {401}
        assert (await world.who(await world.token_of(ci))).status_code == 200

    play(database_url, scenario)


def test_revocation_is_200_whatever_it_is_shown(database_url: str) -> None:
    """Rule I6."""

    async def scenario(world: World) -> None:
        ci = await world.add_program(await world.add_account("acme"))
        token = await world.token_of(ci)
        for text in (
            "garbage",
            "a.b.c",
            "ert_" + "A" * 43,
            "eac_" + "A" * 43,
            "rlc_" + "A" * 43,
            "est_" + "0" * 32 + "_" + "A" * 43,
            "\u20ac",
            "x" * 60_000,
            token,
            token,
        ):
            assert await world.revoke(text, token_type_hint="nonsense") == 200
        expired = await world.token_of(ci)
        world.pass_time(3601)
        assert await world.revoke(expired) == 200

    play(database_url, scenario)


def test_the_endpoint_refuses_only_what_is_no_request(database_url: str) -> None:
    path = "/v1/oauth/revoke"

    async def scenario(world: World) -> None:
        ci = await world.add_program(await world.add_account("acme"))
        token = await world.token_of(ci)
        for answer, status, error in (
            (await world.request("POST", path, json={"token": token}), 400, "invalid_request"),
            (await world.request("GET", path), 405, "invalid_request"),
            (
                await world.request(
                    "POST", path, data={"token": token} | ci.form, headers=ci.basic
                ),
                400,
                "invalid_request",
            ),
        ):
            assert (answer.status_code, answer.json()["error"]) == (status, error)
        wrong = basic(ci.access_key_id, "A" * 40)
        # Without a token there is nothing to end; who says who it is must prove it all the same.
        for form in ({"token_type_hint": "access_token"}, {"token": ""}):
            for headers in (None, ci.basic):
                answer = await world.request("POST", path, data=form, headers=headers)
                assert (answer.status_code, answer.content) == (200, b"")
            answer = await world.request("POST", path, data=form, headers=wrong)
            assert (answer.status_code, answer.json()["error"]) == (401, "invalid_client")
        for headers, status in ((None, 200), (ci.basic, 200), (wrong, 401)):  # and without a body
            answer = await world.request("POST", path, headers=headers)
            assert answer.status_code == status
        assert await world.revoke(token, wrong) == 401
        assert await world.revoke(token, client_id=ci.access_key_id) == 401
        assert (await world.who(token)).status_code == 200

    play(database_url, scenario)


def test_a_client_that_says_who_it_is_ends_its_own_tokens_only(database_url: str) -> None:
    """O21."""

    async def scenario(world: World) -> None:
        acme = await world.add_account("acme")
        ci = await world.add_program(acme, "ci", may("iam:AssumeRole"))
        cd = await world.add_program(acme, "cd")
        role = await world.add_role(acme, "deploy", ci.crn)
        await world.add_user(EMAIL)
        token = await world.token_of(ci)
        access, refresh = await world.signed_in(EMAIL)
        session = (await world.assume(token, role.id)).json()
        foreign = [access, refresh, session["access_token"], session["session_token"], token]
        for shown in foreign:
            assert await world.revoke(shown, cd.basic) == 200
        for shown in (session["access_token"], session["session_token"], token):
            assert await world.revoke(shown, client_id="cli") == 200
        for alive in (token, access, session["access_token"]):
            assert (await world.who(alive)).status_code == 200
        for shown, program in ((session["session_token"], ci.basic), (token, ci.basic)):
            assert await world.revoke(shown, program) == 200
        assert await world.revoke(access, client_id="cli") == 200
        for dead in (token, access, session["access_token"]):
            assert (await world.who(dead)).status_code == 401
        assert (await world.refresh(refresh)).status_code == 200  # the access token was one alone
        assert (await world.token(CREDENTIALS, ci.basic)).status_code == 200

    play(database_url, scenario)


def test_a_refresh_token_ends_its_session(database_url: str) -> None:
    async def scenario(world: World) -> None:
        await world.add_user(EMAIL)
        access, old = await world.signed_in(EMAIL)
        other, _ = await world.signed_in(EMAIL)
        new = (await world.refresh(old)).json()
        assert await world.revoke(new["refresh_token"], client_id="cli") == 200
        for token in (access, new["access_token"]):
            assert (await world.who(token)).status_code == 401
        assert (await world.refresh(new["refresh_token"])).status_code == 400
        assert (await world.who(other)).status_code == 200

    play(database_url, scenario)


@pytest.mark.parametrize("form", ["access_token", "session_token"])
def test_a_role_session_ends_in_both_forms_by_either(database_url: str, form: str) -> None:
    """Rule I9: the token, the signing credential and the sessions assumed with it."""

    async def scenario(world: World) -> None:
        acme = await world.add_account("acme")
        ci = await world.add_program(acme, "ci", may("iam:AssumeRole"))
        first = await world.add_role(acme, "first", ci.crn)
        await world.add_policy(acme, may("iam:AssumeRole"), role_id=first.id)
        second = await world.add_role(acme, "second", f"crn:iam::{acme.id}:role/first")
        session = (await world.assume(await world.token_of(ci), first.id)).json()
        chained = (await world.assume(session["access_token"], second.id)).json()
        assert (await world.who(chained["access_token"])).status_code == 200
        changed = session["session_token"][:-1] + "!"
        assert await world.revoke(changed) == 200
        assert (await world.who(session["access_token"])).status_code == 200
        assert await world.revoke(session[form]) == 200
        for dead in (session, chained):
            assert (await world.who(dead["access_token"])).status_code == 401

    play(database_url, scenario)


Way = Callable[[World, "Scene"], Awaitable[None]]


class Scene:
    """A program, a person with a role, and a token of each kind, all alive."""

    async def set(self, world: World) -> None:
        self.acme = await world.add_account("acme")
        self.ci = await world.add_program(self.acme, "ci", may("iam:AssumeRole"))
        self.attachment = await world.add_policy(
            self.acme, may("test:*"), service_account_id=self.ci.id
        )
        self.user = await world.add_user(EMAIL)
        person = f"crn:iam::{self.user.organization_id}:user/{self.user.id}"
        self.role = await world.add_role(self.acme, "deploy", self.ci.crn, person)
        await world.add_policy(self.acme, may("test:*"), role_id=self.role.id)
        await world.assign(self.role, self.user)
        self.program = await world.token_of(self.ci)
        self.person, self.refresh = await world.signed_in(EMAIL)
        self.by_program = (await world.assume(self.program, self.role.id)).json()["access_token"]
        self.by_person = (await world.assume(self.person, self.role.id)).json()["access_token"]


async def detach_policy(world: World, scene: Scene) -> None:
    await world.database.write(detach, scene.attachment)
    await world.run("UPDATE accounts SET iam_revision = iam_revision + 1")


async def add_deny(world: World, scene: Scene) -> None:
    deny = may("*", effect="deny")
    await world.add_policy(scene.acme, deny, service_account_id=scene.ci.id)


async def disable_key(world: World, scene: Scene) -> None:
    await world.database.write(service_accounts.set_access_key_status, scene.ci.key_id, "inactive")


async def delete_key(world: World, scene: Scene) -> None:
    await world.database.write(service_accounts.delete_access_key, scene.ci.key_id)


async def delete_service_account(world: World, scene: Scene) -> None:
    await world.database.write(service_accounts.delete_service_account, scene.ci.id)


async def replace_service_account(world: World, scene: Scene) -> None:
    await delete_service_account(world, scene)
    await world.add_program(scene.acme, "ci", may("test:*"))


async def suspend_service_account(world: World, scene: Scene) -> None:
    await world.run("UPDATE service_accounts SET status = 'suspended'")


async def suspend_account(world: World, scene: Scene) -> None:
    await world.run("UPDATE accounts SET status = 'suspended'")


async def suspend_person(world: World, scene: Scene) -> None:
    await world.run("UPDATE users SET status = 'suspended'")


async def revoke_sign_in(world: World, scene: Scene) -> None:
    await world.revoke(scene.refresh)


async def change_the_password(world: World, scene: Scene) -> None:
    kept = scene.user.password
    await world.database.write(change_password, scene.user.id, kept, kept + "x", "", world.now)


async def delete_role(world: World, scene: Scene) -> None:
    await world.database.write(role_rows.delete_role, scene.role.id)


async def change_trust(world: World, scene: Scene) -> None:
    await world.database.write(revoke_sessions_of_role, scene.role.id, world.now)


async def unassign(world: World, scene: Scene) -> None:
    await world.database.write(revoke_sessions_of_assigned, scene.role.id, scene.user.id, world.now)


ALL = {"program", "person", "by_program", "by_person"}


@pytest.mark.parametrize(
    ("way", "ended"),
    [
        (disable_key, {"program", "by_program"}),
        (delete_key, {"program", "by_program"}),
        (delete_service_account, {"program", "by_program"}),
        (replace_service_account, {"program", "by_program"}),
        (suspend_service_account, {"program", "by_program"}),
        (suspend_account, {"program", "by_program", "by_person"}),
        (suspend_person, {"person", "by_person"}),
        (revoke_sign_in, {"person", "by_person"}),
        (change_the_password, {"person", "by_person"}),
        (delete_role, {"by_program", "by_person"}),
        (change_trust, {"by_program", "by_person"}),
        (unassign, {"by_person"}),
    ],
)
def test_a_token_ends_at_once_with_what_it_hangs_on(
    database_url: str, way: Way, ended: set[str]
) -> None:
    """G14, O25: and nothing else ends."""

    async def scenario(world: World) -> None:
        scene = Scene()
        await scene.set(world)
        for name in ALL:
            assert (await world.who(getattr(scene, name))).status_code == 200
        await way(world, scene)
        dead = {n for n in ALL if (await world.who(getattr(scene, n))).status_code == 401}
        assert dead == ended

    play(database_url, scenario)


@pytest.mark.parametrize("way", [detach_policy, add_deny])
def test_rights_end_at_once_with_their_policy(database_url: str, way: Way) -> None:
    """G14, and rule I9: the session keeps the role's rights, whatever its source loses."""

    async def scenario(world: World) -> None:
        scene = Scene()
        await scene.set(world)
        assert await world.things(scene.program) == 200
        await way(world, scene)
        assert await world.things(scene.program) == 403
        assert await world.things(scene.by_program) == 200
        assert await world.things(scene.by_person) == 200

    play(database_url, scenario)


def test_what_has_ended_is_forgotten_a_day_later(database_url: str) -> None:
    async def scenario(world: World) -> None:
        scene = Scene()
        await scene.set(world)
        await world.sign_in(EMAIL)
        await world.revoke(scene.program)
        assert await world.database.write(forget_ended, world.now) == 0
        world.pass_time(3600 + 24 * 3600 + 1)
        # Two codes, one revoked token, two sessions of the role.
        assert await world.database.write(forget_ended, world.now) == 5
        assert await world.database.write(forget_ended, world.now) == 0
        assert (await world.refresh(scene.refresh)).status_code == 200

    play(database_url, scenario)


def test_a_login_credential_is_ended_by_its_password(database_url: str) -> None:
    """B2; and its client may be anyone who holds it, or its own program."""

    async def scenario(world: World) -> None:
        acme = await world.add_account("acme")
        ci = await world.add_program(acme, "ci")
        cd = await world.add_program(acme, "cd")
        for headers, left in ((cd.basic, 1), (ci.basic, 0), (None, 0)):
            password = "rlc_" + "A" * 43
            await world.run("DELETE FROM login_credentials")
            await world.run(
                "INSERT INTO login_credentials (id, password_sha256, account_id,"
                " service_account_id, access_key_id, created_at, expires_at) VALUES"
                f" ('{uuid7()}', '{sha256(password.encode()).hexdigest()}', '{acme.id}',"
                f" '{ci.id}', '{ci.key_id}', 0, 1)"
            )
            assert await world.revoke(password, headers) == 200
            assert await world.database.read(live_logins) == left

    play(database_url, scenario)


def live_logins(tx: Connection) -> int:
    return len(tx.rows(_LIVE_LOGINS))


_LIVE_LOGINS = Statement(
    select(login_credentials.c.id).where(login_credentials.c.revoked_at.is_(None))
)

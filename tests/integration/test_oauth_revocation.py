"""Ending tokens: by the endpoint, and by all they hang on (RFC 7009)."""

from __future__ import annotations

import string
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256

import pytest

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.identity.rows.accounts import Account
from cloudcore.identity.rows.policies import ATTACHMENTS, Attachment
from cloudcore.identity.rows.roles import ROLES, Role
from cloudcore.identity.rows.service_accounts import ACCESS_KEYS, SERVICE_ACCOUNTS
from cloudcore.identity.rows.sessions import revoke_sessions_of_assigned, revoke_sessions_of_role
from cloudcore.identity.rows.users import User
from cloudcore.identity.runtime import RUNTIME
from cloudcore.identity.services.users import change_password
from tests.databases import on_both_databases
from tests.integration.oauth_world import CREDENTIALS, Program, World, basic, may
from tests.recount import querying

EMAIL = "ann@example.com"
ALPHABET = string.ascii_letters + string.digits + "-_"


def spellings(token: str) -> list[str]:
    """Return every token that differs from this in its last character."""
    return [token[:-1] + last for last in ALPHABET]


async def test_revoking_one_spelling_ends_them_all(oauth: World) -> None:
    """The unused bits of the last character make sixteen spellings of one token."""
    ci = await oauth.add_program(await oauth.add_account("acme"))
    for index in range(4):
        token = await oauth.token_of(ci)
        good = [twin for twin in spellings(token) if (await oauth.who(twin)).status_code == 200]
        assert len(good) == 16
        assert token in good
        assert await oauth.revoke(good[index]) == 200
        assert {(await oauth.who(twin)).status_code for twin in good} == {401}
    assert (await oauth.who(await oauth.token_of(ci))).status_code == 200


async def test_revocation_is_200_whatever_it_is_shown(oauth: World) -> None:
    """The answer does not tell whether there was such a token (RFC 7009 §2.2)."""
    ci = await oauth.add_program(await oauth.add_account("acme"))
    token = await oauth.token_of(ci)
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
        assert await oauth.revoke(text, token_type_hint="nonsense") == 200
    expired = await oauth.token_of(ci)
    oauth.pass_time(3601)
    assert await oauth.revoke(expired) == 200


async def test_the_endpoint_refuses_only_what_is_no_request(oauth: World) -> None:
    path = "/v1/oauth/revoke"

    ci = await oauth.add_program(await oauth.add_account("acme"))
    token = await oauth.token_of(ci)
    for answer, status, error in (
        (await oauth.request("POST", path, json={"token": token}), 400, "invalid_request"),
        (await oauth.request("GET", path), 405, "invalid_request"),
        (
            await oauth.request("POST", path, data={"token": token} | ci.form, headers=ci.basic),
            400,
            "invalid_request",
        ),
    ):
        assert (answer.status_code, answer.json()["error"]) == (status, error)
    wrong = basic(ci.access_key_id, "A" * 40)
    # Without a token there is nothing to end; who says who it is must prove it all the same.
    for form in ({"token_type_hint": "access_token"}, {"token": ""}):
        for headers in (None, ci.basic):
            answer = await oauth.request("POST", path, data=form, headers=headers)
            assert (answer.status_code, answer.content) == (200, b"")
        answer = await oauth.request("POST", path, data=form, headers=wrong)
        assert (answer.status_code, answer.json()["error"]) == (401, "invalid_client")
    for headers, status in ((None, 200), (ci.basic, 200), (wrong, 401)):  # and without a body
        answer = await oauth.request("POST", path, headers=headers)
        assert answer.status_code == status
    assert await oauth.revoke(token, wrong) == 401
    assert await oauth.revoke(token, client_id=ci.access_key_id) == 401
    assert (await oauth.who(token)).status_code == 200


async def test_a_client_that_says_who_it_is_ends_its_own_tokens_only(oauth: World) -> None:
    """Those of others live on, and the answer is 200 all the same."""
    acme = await oauth.add_account("acme")
    ci = await oauth.add_program(acme, "ci", may("iam:AssumeRole"))
    cd = await oauth.add_program(acme, "cd")
    role = await oauth.add_role(acme, "deploy", ci.crn)
    await oauth.add_user(EMAIL)
    token = await oauth.token_of(ci)
    access, refresh = await oauth.signed_in(EMAIL)
    session = (await oauth.assume(token, role.id)).json()
    foreign = [access, refresh, session["access_token"], session["session_token"], token]
    for shown in foreign:
        assert await oauth.revoke(shown, cd.basic) == 200
    for shown in (session["access_token"], session["session_token"], token):
        assert await oauth.revoke(shown, client_id="cli") == 200
    for alive in (token, access, session["access_token"]):
        assert (await oauth.who(alive)).status_code == 200
    for shown, program in ((session["session_token"], ci.basic), (token, ci.basic)):
        assert await oauth.revoke(shown, program) == 200
    assert await oauth.revoke(access, client_id="cli") == 200
    for dead in (token, access, session["access_token"]):
        assert (await oauth.who(dead)).status_code == 401
    assert (await oauth.refresh(refresh)).status_code == 200  # the access token was one alone
    assert (await oauth.token(CREDENTIALS, ci.basic)).status_code == 200


async def test_a_refresh_token_ends_its_session(oauth: World) -> None:
    await oauth.add_user(EMAIL)
    access, old = await oauth.signed_in(EMAIL)
    other, _ = await oauth.signed_in(EMAIL)
    new = (await oauth.refresh(old)).json()
    assert await oauth.revoke(new["refresh_token"], client_id="cli") == 200
    for token in (access, new["access_token"]):
        assert (await oauth.who(token)).status_code == 401
    assert (await oauth.refresh(new["refresh_token"])).status_code == 400
    assert (await oauth.who(other)).status_code == 200


async def test_a_role_session_ends_in_both_forms_by_either(oauth: World) -> None:
    acme = await oauth.add_account("acme")
    ci = await oauth.add_program(acme, "ci", may("iam:AssumeRole"))
    first = await oauth.add_role(acme, "first", ci.crn)
    await oauth.add_policy(acme, may("iam:AssumeRole"), role_id=first.id)
    second = await oauth.add_role(acme, "second", f"crn:iam::{acme.id}:role/first")
    for form in ("access_token", "session_token"):
        session = (await oauth.assume(await oauth.token_of(ci), first.id)).json()
        chained = (await oauth.assume(session["access_token"], second.id)).json()
        assert await oauth.revoke(session["session_token"][:-1] + "!") == 200
        for alive in (session, chained):
            assert (await oauth.who(alive["access_token"])).status_code == 200
        assert await oauth.revoke(session[form]) == 200
        for dead in (session, chained):
            assert (await oauth.who(dead["access_token"])).status_code == 401


@dataclass
class Scene:
    """A program, a person with a role, and a token of each kind, all alive."""

    world: World
    acme: Account
    ci: Program
    attachment: Attachment
    user: User
    role: Role
    refresh: str
    tokens: dict[str, str]

    async def alive(self) -> set[str]:
        who = {name: await self.world.who(token) for name, token in self.tokens.items()}
        assert {answer.status_code for answer in who.values()} <= {200, 401}
        return {name for name, answer in who.items() if answer.status_code == 200}


async def make_scene(world: World) -> Scene:
    acme = await world.add_account("acme")
    ci = await world.add_program(acme, "ci", may("iam:AssumeRole"))
    attachment = await world.add_policy(acme, may("test:*"), service_account_id=ci.id)
    user = await world.add_user(EMAIL)
    person = f"crn:iam::{user.organization_id}:user/{user.id}"
    role = await world.add_role(acme, "deploy", ci.crn, person)
    await world.add_policy(acme, may("test:*"), role_id=role.id)
    await world.assign(role, user)
    tokens = {"program": await world.token_of(ci)}
    tokens["person"], refresh = await world.signed_in(EMAIL)
    for name in ("program", "person"):
        session = await world.assume(tokens[name], role.id)
        tokens[f"by_{name}"] = session.json()["access_token"]
    return Scene(world, acme, ci, attachment, user, role, refresh, tokens)


Way = Callable[[World, Scene], Awaitable[object]]


async def let_key_expire(world: World, scene: Scene) -> None:
    await world.run(f"UPDATE access_keys SET expires_at = {world.now + 60 * MICROSECONDS}")
    assert await scene.alive() == scene.tokens.keys()
    world.pass_time(60)


async def replace_service_account(world: World, scene: Scene) -> None:
    await world.database.write(SERVICE_ACCOUNTS.remove, scene.acme.id, scene.ci.id)
    await world.add_program(scene.acme, "ci", may("test:*"))


def running(statement: str) -> Way:
    return lambda world, _: world.run(statement)


OF_KEY, OF_PERSON = {"program", "by_program"}, {"person", "by_person"}
OF_ROLE = {"by_program", "by_person"}


ENDINGS = [
    pytest.param(way, ended, id=name)
    for name, ended, way in (
        ("key disabled", OF_KEY, running("UPDATE access_keys SET status = 'inactive'")),
        ("key expired", OF_KEY, let_key_expire),
        (
            "key deleted",
            OF_KEY,
            lambda w, s: w.database.write(ACCESS_KEYS.remove, (s.acme.id, s.ci.id), s.ci.key_id),
        ),
        (
            "program deleted",
            OF_KEY,
            lambda w, s: w.database.write(SERVICE_ACCOUNTS.remove, s.acme.id, s.ci.id),
        ),
        ("program replaced", OF_KEY, replace_service_account),
        (
            "program suspended",
            OF_KEY,
            running("UPDATE service_accounts SET status = 'suspended'"),
        ),
        (
            "account suspended",
            OF_KEY | OF_ROLE,
            running("UPDATE accounts SET status = 'suspended'"),
        ),
        ("person suspended", OF_PERSON, running("UPDATE users SET status = 'suspended'")),
        ("sign-in revoked", OF_PERSON, lambda w, s: w.revoke(s.refresh)),
        (
            "password changed",
            OF_PERSON,
            lambda w, s: w.database.write(
                change_password, s.user.id, s.user.password, "x", "", w.now
            ),
        ),
        (
            "role deleted",
            OF_ROLE,
            lambda w, s: w.database.write(ROLES.remove, s.acme.id, s.role.id),
        ),
        (
            "trust changed",
            OF_ROLE,
            lambda w, s: w.database.write(revoke_sessions_of_role, s.role.id, w.now),
        ),
        (
            "unassigned",
            {"by_person"},
            lambda w, s: w.database.write(revoke_sessions_of_assigned, s.role.id, s.user.id, w.now),
        ),
    )
]


@pytest.mark.parametrize(("way", "ended"), ENDINGS)
async def test_a_token_ends_at_once_with_what_it_hangs_on(
    oauth: World, way: Way, ended: set[str]
) -> None:
    scene = await make_scene(oauth)
    assert await scene.alive() == scene.tokens.keys()
    await way(oauth, scene)
    assert await scene.alive() == scene.tokens.keys() - ended


@pytest.mark.postgresql
@pytest.mark.usefixtures("postgresql_database")
@pytest.mark.parametrize(
    ("way", "ended"),
    [
        each
        for each in ENDINGS
        if each.id in ("key deleted", "account suspended", "program suspended", "unassigned")
    ],
)
async def test_a_token_ends_at_once_on_postgresql(oauth: World, way: Way, ended: set[str]) -> None:
    """One statement looks for whatever ends a token: by outer joins, which may find nothing."""
    await test_a_token_ends_at_once_with_what_it_hangs_on(oauth, way, ended)


@pytest.mark.parametrize("is_denied", [False, True], ids=["detached", "denied"])
async def test_rights_end_at_once_with_their_policy(oauth: World, *, is_denied: bool) -> None:
    """The session keeps the role's rights, whatever its source loses."""
    scene = await make_scene(oauth)
    own = scene.attachment
    assert await oauth.things(scene.tokens["program"]) == 200
    if is_denied:
        deny = may("*", effect="deny")
        await oauth.add_policy(scene.acme, deny, service_account_id=scene.ci.id)
    else:
        of = scene.acme.id, own.policy_id
        await oauth.database.write(ATTACHMENTS.remove, of, own.id)
        await oauth.run("UPDATE accounts SET iam_revision = iam_revision + 1")
    assert await oauth.things(scene.tokens["program"]) == 403
    for name in OF_ROLE:
        assert await oauth.things(scene.tokens[name]) == 200


async def forgotten(oauth: World) -> int:
    """Delete what has ended, as the timer does; return how many rows there were."""
    return sum([await oauth.database.write(each, oauth.now) for each in RUNTIME.expiry])


@on_both_databases
async def test_what_has_ended_is_forgotten_a_day_later(oauth: World) -> None:
    scene = await make_scene(oauth)
    await oauth.sign_in(EMAIL)
    await oauth.revoke(scene.tokens["program"])
    assert await forgotten(oauth) == 0
    oauth.pass_time(3600 + 24 * 3600 + 1)
    # Two codes, one revoked token, two sessions of the role.
    assert await forgotten(oauth) == 5
    assert await forgotten(oauth) == 0
    assert (await oauth.refresh(scene.refresh)).status_code == 200


async def test_a_login_credential_is_ended_by_its_password(oauth: World, metadata_url: str) -> None:
    """Its client may be anyone who holds it, or its own program."""
    acme = await oauth.add_account("acme")
    ci = await oauth.add_program(acme, "ci")
    cd = await oauth.add_program(acme, "cd")
    for headers, left in ((cd.basic, 1), (ci.basic, 0), (None, 0)):
        password = "rlc_" + "A" * 43
        await oauth.run("DELETE FROM login_credentials")
        await oauth.run(
            "INSERT INTO login_credentials (id, password_sha256, account_id,"
            " service_account_id, access_key_id, created_at, expires_at) VALUES"
            f" ('{uuid7()}', '{sha256(password.encode()).hexdigest()}', '{acme.id}',"
            f" '{ci.id}', '{ci.key_id}', 0, 1)"
        )
        assert await oauth.revoke(password, headers) == 200
        with querying(metadata_url) as query:
            alive = query("SELECT count(*) FROM login_credentials WHERE revoked_at IS NULL")
        assert alive[0][0] == left

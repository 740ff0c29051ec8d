"""``/v2/token``: whom it gives a bearer, for which scopes, and how it refuses."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any, Final

import httpx
import pytest

from cloudcore.clock import MICROSECONDS
from cloudcore.identity.services.service_accounts import update_access_key
from cloudcore.wire import moment_of
from registry.metadata.logins import forget_expired
from tests.integration.tokens_world import access_of
from tests.tenants import (
    ALLOW_ALL,
    HOST,
    Install,
    allow,
    basic,
    bearer,
    let,
)


def entry(name: str, actions: str, denied: str = "") -> dict[str, Any]:
    """Return an entry of a bearer; both lists separated by commas."""
    kind = "registry" if name == "catalog" else "repository"
    return {
        "type": kind,
        "name": name,
        "actions": [action for action in actions.split(",") if action],
        "denied": [action for action in denied.split(",") if action],
    }


async def test_the_answer_is_that_of_the_token_specification(install: Install) -> None:
    account = await install.add_account("acme")
    password = await install.login(await install.add_program(account, "ci", ALLOW_ALL))
    async with install.connect() as client:
        # A registry renamed or behind a proxy is still this one: any service will do.
        for service in (HOST, "old.example"):
            asked = {"scope": "repository:acme/a:pull", "service": service, "account": "token"}
            answer = await client.get("/v2/token", params=asked, headers=basic(password))
            assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
            found = answer.json()
            assert found.pop("issued_at").endswith("Z")
            token = found["token"]
            assert found == {
                "token": token,
                "access_token": token,
                "expires_in": 300,
                "scope": "repository:acme/a:pull",
            }
            assert (await client.get("/v2/", headers=bearer(token))).status_code == 200


GRANTED: Final[list[tuple[list[str], list[dict[str, Any]]]]] = [
    ([], []),
    (["repository:acme/web/a:pull"], [entry("acme/web/a", "pull")]),
    (["repository:acme/web/a:push,pull"], [entry("acme/web/a", "pull,push")]),
    # fewer rights than asked for is no error
    (["repository:acme/web/a:pull,delete"], [entry("acme/web/a", "pull", "delete")]),
    (["repository:acme/db/a:pull"], [entry("acme/db/a", "", "pull")]),
    (["repository:other/a:pull"], [entry("other/a", "", "pull")]),
    (["repository:nobody/a:pull"], [entry("nobody/a", "", "pull")]),
    # never widened
    (["repository:*:*"], []),
    (["acme/web/a:*"], []),
    (["repository:acme/web/*:pull"], []),
    (["registry:catalog:*"], [entry("catalog", "", "*")]),
    (["registry:catalog:pull"], []),
    (["registry:other:*"], []),
    (["repository:acme/web/a:*"], [entry("acme/web/a", "pull,push", "delete")]),
    (["repository:acme/web/a:pull,fly"], [entry("acme/web/a", "pull")]),
    (["repository:acme/web/a:fly"], []),
    (["repository:acme/web/a:"], []),
    (["repository:acme/web/a"], []),
    (["repository"], []),
    ([""], []),
    # what is no name of a repository
    (["repository:acme/Web:pull"], []),
    (["repository:acme/../other/a:pull"], []),
    (["repository:acme:pull"], []),
    # a class is ignored, a port belongs to nothing here
    (["repository(plugin):acme/web/a:pull"], [entry("acme/web/a", "pull")]),
    (["repository:host:5000/acme/web/a:pull"], []),
    # several in one value, several values, the same name twice
    (
        ["repository:acme/web/a:pull repository:acme/web/b:push"],
        [entry("acme/web/a", "pull"), entry("acme/web/b", "push")],
    ),
    (
        ["repository:acme/web/a:pull", "repository:acme/web/a:push"],
        [entry("acme/web/a", "pull,push")],
    ),
]
"""What is granted for scopes to who may pull and push below `acme/web`."""


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_scopes_are_granted_as_far_as_policies_go(install: Install, method: str) -> None:
    account = await install.add_account("acme")
    await install.add_repository(await install.add_account("other"), "a")
    web = "crn:registry:local:acme:repository/web/*"
    below = allow("registry:PullImage", "registry:PushImage", on=web)
    password = await install.login(await install.add_program(account, "ci", below))
    async with install.connect() as client:
        for scopes, granted in GRANTED:
            if method == "GET":
                query = httpx.QueryParams([("scope", scope) for scope in scopes])
                answer = await client.get("/v2/token", params=query, headers=basic(password))
            else:
                form = {"grant_type": "password", "username": "token", "password": password}
                answer = await client.post("/v2/token", data=form | {"scope": scopes})
            assert answer.status_code == 200, scopes
            assert access_of(answer.json()["token"]) == granted, scopes


async def test_every_wrong_credential_gets_the_same_answer(install: Install) -> None:
    """Nothing tells an unknown user from a wrong password."""
    account = await install.add_account("acme")
    expired = await install.login(await install.add_program(account, "old", ALLOW_ALL))
    install.clock.advance(12 * 3600)
    program = await install.add_program(account, "ci", ALLOW_ALL)
    password = await install.login(program)
    async with install.connect() as client:
        plain = await client.get("/v2/token", headers=basic("x"))
        for wrong, headers in {
            "unknown user": [*basic(password, "admin").items()],
            "wrong password": [*basic("rlc_" + "x" * 43).items()],
            "expired": [*basic(expired).items()],
            "access key": [*basic("a" * 40, "AKAAAAAAAAAAAAAAAAAA").items()],
            "api token": [*bearer(program.access_token).items()],
            "no colon": [("Authorization", f"Basic {base64.b64encode(b'token').decode()}")],
            "not base64": [("Authorization", "Basic !!!")],
            "two headers": [*basic(password).items()] * 2,
        }.items():
            answer = await client.get("/v2/token", headers=headers)
            assert answer.status_code == 401, wrong
            assert answer.headers["www-authenticate"] == f'Basic realm="{HOST}"', wrong
            assert answer.content == plain.content, wrong
            assert answer.json()["errors"][0]["code"] == "UNAUTHORIZED", wrong


FORMS: Final[list[tuple[dict[str, Any], int, str | None]]] = [
    ({"grant_type": "password", "username": "token", "password": "{}"}, 200, None),
    ({"grant_type": "refresh_token", "refresh_token": "{}"}, 200, None),
    ({"grant_type": "refresh_token", "refresh_token": "rlc_no"}, 401, "invalid_grant"),
    ({"grant_type": "password", "username": "token", "password": "no"}, 401, "invalid_grant"),
    ({"grant_type": "password", "username": "me", "password": "{}"}, 401, "invalid_grant"),
    ({"grant_type": "password", "username": "token"}, 400, "invalid_request"),
    ({"grant_type": "password", "password": "{}"}, 400, "invalid_request"),
    ({"grant_type": "refresh_token"}, 400, "invalid_request"),
    ({"grant_type": "client_credentials"}, 400, "unsupported_grant_type"),
    ({"grant": "password"}, 400, "invalid_request"),
    ({}, 400, "invalid_request"),
    ({"grant_type": ["password", "password"]}, 400, "invalid_request"),
    ({"grant_type": "password", "pad": "x" * 70_000}, 413, "invalid_request"),
]
"""Forms, in which `{}` is the password of a login, and their answers."""


async def test_the_form_of_oauth(install: Install) -> None:
    account = await install.add_account("acme")
    password = await install.login(await install.add_program(account, "ci", ALLOW_ALL))
    async with install.connect() as client:
        for form, status, error in FORMS:
            filled = {
                key: value.format(password) if isinstance(value, str) else value
                for key, value in form.items()
            }
            answer = await client.post("/v2/token", data=filled)
            assert (answer.status_code, answer.json().get("error")) == (status, error), form
            assert answer.headers["cache-control"] == "no-store", form
            if error:
                assert set(answer.json()) == {"error", "error_description"}, form


async def test_no_malformed_form_makes_a_client_give_up(install: Install) -> None:
    form = "application/x-www-form-urlencoded"
    async with install.connect() as client:
        for content_type, body in (
            (f"{form}; charset=UTF-8", b"grant_type=x"),
            ("application/json", b"{}"),
            ("", b"grant_type=password"),
            (form, b"%ff=\xff"),
        ):
            headers = {"content-type": content_type} if content_type else {}
            answer = await client.post("/v2/token", content=body, headers=headers)
            assert answer.status_code == 400, content_type
            error = answer.json()["error"]
            assert error in ("invalid_request", "unsupported_grant_type"), content_type
        answer, head = await client.put("/v2/token"), await client.head("/v2/token")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST")
    assert (head.status_code, head.content) == (200, b"")


async def test_who_has_not_signed_in_gets_what_is_public(install: Install) -> None:
    account = await install.add_account("acme")
    await install.add_repository(account, "open", let("*"))
    await install.add_repository(account, "shut")
    scope = "repository:acme/open:pull,push repository:acme/shut:pull registry:catalog:*"
    token = await install.exchange(None, scope)
    assert access_of(token) == [
        entry("acme/open", "pull", "push"),
        entry("acme/shut", "", "pull"),
        entry("catalog", "", "*"),
    ]
    async with install.connect() as client:
        assert (await client.get("/v2/", headers=bearer(token))).status_code == 200
        listed = await client.get("/v2/acme/open/tags/list", headers=bearer(token))
        assert listed.status_code == 200


async def test_logins_are_forgotten_when_they_have_expired(install: Install) -> None:
    account = await install.add_account("acme")
    program = await install.add_program(account, "ci", ALLOW_ALL)
    await install.login(program)
    install.clock.advance(3600)
    later = await install.login(program)
    install.clock.advance(11 * 3600 + 60)
    assert await install.database.write(forget_expired, install.clock()) == 1
    await install.exchange(later)


async def test_a_login_lasts_twelve_hours_or_as_long_as_what_it_is_made_with(
    install: Install,
) -> None:
    """A role session that lasts an hour, or an access key that expires in half an hour."""
    account = await install.add_account("acme")
    program = await install.add_program(account, "ci", ALLOW_ALL)
    session = await install.add_role_session(account, "deploy", ALLOW_ALL)
    ending = await install.add_program(account, "ending", ALLOW_ALL)
    begun = install.clock.now
    end = {"expires_at": begun + 1800 * MICROSECONDS}
    await install.database.write(
        update_access_key, (account.id, ending.id), ending.key_id or "", end, begun
    )
    async with install.connect() as client:
        minted = [
            await client.post("/v1/authorization-token", headers=bearer(who.access_token))
            for who in (program, session, ending)
        ]
        for answer, seconds in zip(minted, (12 * 3600, 3600, 1800), strict=True):
            assert answer.status_code == 200, answer.text
            told = datetime.fromisoformat(answer.json()["expires_at"])
            assert abs(moment_of(told) - begun - seconds * MICROSECONDS) < MICROSECONDS
            password = answer.json()["password"]
            install.clock.now = begun + (seconds - 5) * MICROSECONDS
            alive = await client.get("/v2/token", headers=basic(password))
            install.clock.now = begun + (seconds + 5) * MICROSECONDS
            over = await client.get("/v2/token", headers=basic(password))
            assert (alive.status_code, over.status_code) == (200, 401)

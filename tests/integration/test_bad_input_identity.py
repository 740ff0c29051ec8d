"""Malformed credentials and bodies, answers that must not be stored, codes without a challenge."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest

from cloudcore.clock import MICROSECONDS
from cloudcore.identity.tokens.jws import sign
from cloudcore.serving.limits import ServerLimits
from registry.services.access.bearers import BEARERS
from tests.integration.bad_input.raw_request import send
from tests.integration.id_places import BODIES, PLACES, UNKNOWN, filled, token_of
from tests.integration.identity_operations import dump
from tests.integration.oauth_world import VERIFIER, World, authorization_query
from tests.integration.served_world import Served
from tests.integration.tokens_world import challenge, refused
from tests.spec.operations import OPERATIONS
from tests.tenants import HOST, Install, bearer
from tests.unit.identity_forgeries import token as forge

ROOT: Final = Path(__file__).parents[2]
TAGS: Final = "/v2/acme/r/tags/list"
INVALID: Final = challenge("repository:acme/r:pull", "invalid_token")


def claims_at(install: Install) -> dict[str, Any]:
    """Return claims of a bearer that begins now, but for its end."""
    now = install.clock.now // MICROSECONDS
    claims = {"iss": f"http://{HOST}", "aud": HOST, "sub": "", "iat": now, "nbf": now}
    return claims | {"jti": "01890000-0000-7000-8000-00000000000a", "access": []}


async def test_what_is_no_bearer_is_refused(install: Install) -> None:
    """A scheme without a credential, or with a long one; of another scheme, nobody has come."""
    sizes = (64 * 1024 - 8, 64 * 1024, 64 * 1024 + 1)
    assert max(sizes) + 1024 < ServerLimits().head_bytes  # so that the door can say 401
    wrong = ("Bearer", "Bearer ", "Bearer\t", "Bearer a b", "bearer,")
    for number, value in enumerate((*wrong, *(f"Bearer {'a' * size}" for size in sizes), "x")):
        async with install.connect(number) as client:
            answer = await client.get(TAGS, headers={"Authorization": value})
        expected = challenge("repository:acme/r:pull") if value == "x" else INVALID
        refused(answer, 401, expected, about=f"{value[:20]}, {len(value)} characters")


async def test_200_kilobytes_of_claims_are_refused(install: Install, registry_url: str) -> None:
    """Even rightly signed; and less, rightly signed, is what it says."""

    key = install.keys.current(BEARERS)
    account = await install.add_account("acme")
    await install.add_repository(account, "r")
    access = [{"type": "repository", "name": "acme/r", "actions": ["pull"], "denied": []}]
    claims = claims_at(install)
    claims |= {"exp": claims["iat"] + 300, "access": access}
    sizes = (1_000, 50 * 1024, 200 * 1024)  # the second grows past 64 KiB in base64
    small, large, huge = (sign(claims | {"pad": "x" * size}, key) for size in sizes)
    async with install.connect() as client:
        assert (await client.get(TAGS, headers=bearer(small))).status_code == 200
        for token in (large, huge):
            answer = await client.get(TAGS, headers=bearer(token))
            refused(answer, 401, INVALID, about=f"{len(token)} characters")
    assert send(registry_url, "GET", "/v2/", bearer(huge)).status == 431


async def test_an_end_that_is_no_number_is_no_end(install: Install) -> None:
    """Rightly signed, with an `exp` that some readers take for eternity."""

    key = install.keys.current(BEARERS)
    header = {"alg": key.algorithm, "typ": "JWT", "kid": key.kid}
    for number, end in enumerate(("1e999", '"9999999999"', "null", "true", "[9999999999]", "1e30")):
        raw = json.dumps(claims_at(install))[:-1] + f', "exp": {end}}}'
        forged = forge(header, raw.encode(), key)
        async with install.connect(number) as client:
            answer = await client.get(TAGS, headers=bearer(forged))
        refused(answer, 401, INVALID, about=end)


@pytest.mark.parametrize("text", ["\\u0000", "\\ud800", "\\udc00\\ud800"])
async def test_text_that_is_none_is_refused_in_every_body(served: Served, text: str) -> None:
    """As a value and as a name, in every operation that reads a body."""
    bodies = [place for place in PLACES if place.operation.place in BODIES]
    bodies = [place for place in bodies if BODIES[place.operation.place]]
    for place in bodies:
        operation = place.operation
        for body in (
            f'{{"{text}":1}}',
            f'{{"name":"a{text}b"}}',
            f'{{"a":[{{"b":"{text}"}}]}}',
        ):
            answer = await served.ask(
                operation.method,
                filled(place, served.acme),
                body.encode(),
                token=token_of(operation, served.acme),
                headers={"Content-Type": "application/json"},
            )
            assert answer.status_code == 400, (operation.place, body)
            params = answer.json()["error"]["params"]
            expected = {"field": "body", "reason": "invalid_text"}
            assert params == expected, (operation.place, body)
    assert len(bodies) >= 8


async def test_no_answer_of_oauth_is_stored(oauth: World) -> None:
    """Of success and of every refusal, at the token endpoint, revocation and the page."""

    ci = await oauth.add_program(await oauth.add_account("acme"))
    await oauth.add_user("ann@example.com")
    page = await oauth.open_page()
    answers = [
        await oauth.token({"grant_type": "client_credentials"}, ci.basic),
        await oauth.token({"grant_type": "client_credentials"}),
        await oauth.token({}),
        await oauth.redeem("eac_" + "A" * 43),
        await oauth.request("POST", "/v1/oauth/revoke", data={"token": "x"}),
        page,
        await oauth.send_page(page, email="ann@example.com", password="wrong"),
    ]
    for answer in answers:
        assert answer.headers["cache-control"] == "no-store", answer.request.url


async def test_no_code_lacks_a_challenge(oauth: World) -> None:
    """No code is made without one, so no verifier is ever shown for none (RFC 9700 §4.8.2)."""

    await oauth.add_user("ann@example.com")
    page = await oauth.open_page(code_challenge="", code_challenge_method="")
    assert page.status_code == 400
    query = {k: v for k, v in authorization_query().items() if "challenge" not in k}
    path = "/v1/oauth/authorize?" + "&".join(f"{k}={quote(v)}" for k, v in query.items())
    form = {"email": "ann@example.com", "password": "a long enough password"}
    sent = await oauth.request("POST", path, data=form)
    assert sent.status_code == 403  # it came from no page of ours
    assert 'id="code"' not in sent.text
    for code in ("", "eac_" + "A" * 43):
        answer = await oauth.redeem(code, code_verifier=VERIFIER)
        assert answer.status_code == 400
        assert answer.json()["error"] in ("invalid_grant", "invalid_request")


@pytest.mark.parametrize("body", [b"{}", b'{"force":true}', b" "], ids=["empty", "fields", "blank"])
async def test_a_body_where_none_is_taken_is_refused(served: Served, body: bytes) -> None:
    """What it asks for would be passed over; so would ``{}`` that is not sent as JSON."""

    paths = {place.operation.place: filled(place, served.acme) for place in PLACES}
    before, sent = await served.database.read(dump), 0
    for operation in OPERATIONS:
        if operation.place not in served.without_body:
            continue
        answer = await served.ask(
            operation.method,
            paths.get(operation.place, re.sub(r"{\w+}", UNKNOWN, operation.path)),
            body,
            token=token_of(operation, served.acme),
            headers={"Idempotency-Key": "once"} if operation.takes_key else None,
        )
        assert answer.status_code == 400, (operation.place, answer.text)
        error = answer.json()["error"]
        if error != "invalid_request":  # the shape of OAuth, below its paths
            assert error["code"] == "INVALID_INPUT"
            assert error["params"] == {"field": "body", "reason": "not_allowed"}
        sent += 1
    assert sent == len(served.without_body)
    assert await served.database.read(dump) == before

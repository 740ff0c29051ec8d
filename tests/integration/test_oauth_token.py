"""The token endpoint for programs: who gets a token, for how long, and how it is refused."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

import httpx
import pytest

from cloudcore.clock import MICROSECONDS
from cloudcore.wire import rfc3339
from tests.integration.oauth_world import CREDENTIALS, Program, World, basic, bearer, may

WRONG = "A" * 40


async def program(world: World) -> Program:
    return await world.add_program(await world.add_account("acme"), "ci", may("test:*"))


async def told(
    world: World, form: dict[str, str], headers: dict[str, str] | None
) -> tuple[int, str | None]:
    """Ask the token endpoint; return the status and the error, if there is one."""
    answer = await world.token(form, headers)
    return answer.status_code, answer.json().get("error")


async def test_a_key_pair_is_good_for_a_token_by_basic_and_by_form(oauth: World) -> None:
    ci = await program(oauth)
    for form, headers in (
        (CREDENTIALS, ci.basic),
        (CREDENTIALS | ci.form, None),
        (CREDENTIALS | {"client_id": ci.access_key_id}, ci.basic),
        (CREDENTIALS, basic(quote(ci.access_key_id, safe=""), quote(ci.secret, safe=""))),
        (CREDENTIALS, basic(ci.access_key_id, "".join(f"%{ord(c):02x}" for c in ci.secret))),
    ):
        answer = await oauth.token(form, headers)
        assert answer.status_code == 200, answer.text
        assert answer.headers["cache-control"] == "no-store"
        assert set(answer.json()) == {"access_token", "token_type", "expires_in"}
        assert answer.json()["token_type"] == "Bearer"
        assert answer.json()["expires_in"] == 3600
        token = answer.json()["access_token"]
        who = (await oauth.who(token)).json()
        assert (who["kind"], who["id"], who["crn"]) == ("service_account", ci.id, ci.crn)
        assert who["account_id"] == ci.account.id
        assert who["access_key_id"] == ci.key_id
        assert await oauth.things(token) == 200


async def test_unknown_key_and_wrong_secret_answer_byte_for_byte_alike(oauth: World) -> None:
    """So do an inactive key and the pair of a role session."""
    ci = await program(oauth)
    stale = await oauth.add_program(ci.account, "stale")
    await oauth.run(f"UPDATE access_keys SET status = 'inactive' WHERE id = '{stale.key_id}'")
    pairs = [
        ("AK" + "A" * 18, WRONG),
        (ci.access_key_id, WRONG),
        (ci.access_key_id, ci.secret[:-1]),
        (ci.access_key_id, ""),
        (ci.access_key_id.lower(), ci.secret),
        ("", ci.secret),
        (stale.access_key_id, stale.secret),
        ("AS" + "A" * 18, WRONG),
        ("we+ird", "se%cret=="),
    ]
    for by_header in (True, False):
        seen = set()
        for key_id, secret in pairs:
            named = {} if by_header else {"client_id": key_id, "client_secret": secret}
            answer = await oauth.token(
                CREDENTIALS | named, basic(key_id, secret) if by_header else None
            )
            headers = {k: v for k, v in answer.headers.items() if k != "x-request-id"}
            seen.add((answer.status_code, answer.content, tuple(headers.items())))
        ((status, body, found),) = seen
        assert status == 401
        assert b'"error":"invalid_client"' in body
        assert dict(found)["cache-control"] == "no-store"
        assert ("www-authenticate" in dict(found)) == by_header
    for shown in (None, bearer("x")):
        assert await told(oauth, CREDENTIALS, shown) == (401, "invalid_client")


DURATIONS: Final = [
    *(("1", 900), ("99999", 43200), ("-5", 900), ("900", 900), ("1800", 1800)),
    *(("43200", 43200), ("", 3600), ("0", 900), ("-0", 900), ("0" * 50 + "1800", 1800)),
    *(("1" + "0" * 30, 43200), ("-1" + "0" * 30, 900)),
    *(("9" * 60_000, 43200), ("-" + "9" * 60_000, 900), ("0" * 60_000, 900)),
]


async def test_a_duration_is_clamped_and_reported(oauth: World) -> None:
    """To 900 seconds at least and 43,200 at most; `expires_in` tells which it is."""
    ci = await program(oauth)
    for asked, given in DURATIONS:
        answer = await oauth.token(CREDENTIALS | {"duration_seconds": asked}, ci.basic)
        assert answer.json()["expires_in"] == given, asked[:12]
        token = answer.json()["access_token"]
        oauth.pass_time(given - 1)
        assert (await oauth.who(token)).status_code == 200, asked[:12]
        oauth.pass_time(1)
        assert (await oauth.who(token)).status_code == 401, asked[:12]


async def test_a_duration_is_a_whole_number(oauth: World) -> None:
    """Anything else is refused, not taken for the default."""
    ci = await program(oauth)
    for asked in ("abc", "-", "--1", "1.5", "1e3", "0x10", "٣", "1_0", "0" * 60_000 + "x"):
        form = CREDENTIALS | {"duration_seconds": asked}
        assert await told(oauth, form, ci.basic) == (400, "invalid_request")


async def test_what_a_token_says_of_its_time_is_what_was_asked_for(oauth: World) -> None:
    """To the second, in whatever part of a second, however long issuing takes."""
    await oauth.add_user("ann@example.com")
    ci = await program(oauth)
    role = await oauth.add_role(ci.account, "deploy", ci.crn)
    await oauth.add_policy(ci.account, may("iam:AssumeRole"), service_account_id=ci.id)
    for part in (0, 1, 400_000, 999_999):
        oauth.tick = 0
        oauth.now += MICROSECONDS - oauth.now % MICROSECONDS + part
        code = await oauth.sign_in("ann@example.com")
        token = await oauth.token_of(ci)
        oauth.tick = 300_000
        for asked, answer in (
            (900, await oauth.token(CREDENTIALS | {"duration_seconds": "900"}, ci.basic)),
            (3600, await oauth.redeem(code)),
            (900, await oauth.assume(token, role.id, duration_seconds=900)),
            (3600, await oauth.assume(token, role.id)),
        ):
            told = answer.json()
            assert told["expires_in"] == asked
            claims = oauth.tokens.verify(told["access_token"])
            assert claims.exp - claims.iat == asked
            if "expires_at" in told:
                assert told["expires_at"] == rfc3339(claims.exp * MICROSECONDS)


async def test_nothing_outlives_the_key_that_it_is_made_with(oauth: World) -> None:
    """And an expired key is refused like an inactive one: make another."""
    ci = await program(oauth)
    role = await oauth.add_role(ci.account, "deploy", ci.crn)
    await oauth.add_policy(ci.account, may("iam:AssumeRole"), service_account_id=ci.id)
    end = oauth.now + 1200 * MICROSECONDS
    await oauth.run(f"UPDATE access_keys SET expires_at = {end}")
    token = (await oauth.token(CREDENTIALS, ci.basic)).json()
    assert token["expires_in"] == 1200
    session = (await oauth.assume(token["access_token"], role.id)).json()
    assert session["expires_at"] == rfc3339(end)
    oauth.pass_time(1199)
    assert (await oauth.token(CREDENTIALS, ci.basic)).json()["expires_in"] == 1
    oauth.pass_time(1)
    assert await told(oauth, CREDENTIALS, ci.basic) == (401, "invalid_client")
    for dead in (token, session):
        assert (await oauth.who(dead["access_token"])).status_code == 401


FORM: Final = "application/x-www-form-urlencoded"
OF_THE_KERNEL: Final = [
    *((method, "", None, 405) for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS")),
    ("POST", '{"grant_type":"client_credentials"}', "application/json", 400),
    ("POST", "{", "application/json", 400),
    ("POST", "grant_type=client_credentials", "text/plain", 400),
    ("POST", "a=" + "b" * 70_000, FORM, 413),
]
"""Refusals before the form is read."""
OF_A_FORM: Final = [
    ("", "invalid_request"),
    ("grant_type=", "invalid_request"),
    ("grant_type=client_credentials&grant_type=client_credentials", "invalid_request"),
    ("grant_type=%ff", "invalid_request"),
    ("grant_type=%00", "invalid_request"),
    ("grant_type=password&username=a&password=b", "unsupported_grant_type"),
    ("grant_type=Client_Credentials", "unsupported_grant_type"),
    ("grant_type=client_credentials&scope=all", "invalid_scope"),
    ("grant_type=client_credentials&client_id=cli", "unauthorized_client"),
]


def check_shape(answer: httpx.Response, status: int, error: str) -> None:
    """Check that a refusal has the shape of OAuth (RFC 6749 §5.2), and is not stored (§5.1)."""
    assert answer.status_code == status, answer.text
    assert answer.headers.get_list("cache-control") == ["no-store"]
    assert answer.headers["content-type"] == "application/json"
    assert ("allow" in answer.headers) == (status == 405)
    if answer.request.method != "HEAD":
        told = answer.json()
        assert (set(told), told["error"]) == ({"error", "error_description"}, error)
        assert re.fullmatch(r'[^"\\\x00-\x1f\x7f-\U0010ffff]+', told["error_description"])


@pytest.mark.parametrize("path", ["/v1/oauth/token", "/v1/oauth/revoke"])
async def test_what_the_kernel_refuses_has_the_shape_of_oauth(oauth: World, path: str) -> None:
    for method, content, kind, status in OF_THE_KERNEL:
        headers = {"Content-Type": kind} if kind else {}
        answer = await oauth.request(method, path, content=content, headers=headers)
        check_shape(answer, status, "invalid_request")


async def test_every_form_that_is_refused_is_told_why(oauth: World) -> None:
    for content, error in OF_A_FORM:
        headers = {"Content-Type": FORM}
        answer = await oauth.request("POST", "/v1/oauth/token", content=content, headers=headers)
        check_shape(answer, 400, error)
    check_shape(await oauth.request("POST", "/v1/oauth/token"), 400, "invalid_request")


async def test_other_refusals_say_nothing_of_storing(oauth: World) -> None:
    for path in ("/v1/whoami", "/v1/jwks"):
        answer = await oauth.request("PUT", path)
        assert answer.status_code == 405
        assert "cache-control" not in answer.headers


async def test_the_two_look_alike_refusals_have_opposite_remedies(oauth: World) -> None:
    """A right key of someone suspended is to be kept: not the answer to a wrong one."""
    for table in ("accounts", "service_accounts"):
        account = await oauth.add_account(table.replace("_", "-"))
        ci = await oauth.add_program(account)
        row = account.id if table == "accounts" else ci.id
        for status, found, error in (
            ("suspended", 400, "unauthorized_client"),
            ("active", 200, None),
        ):
            await oauth.run(f"UPDATE {table} SET status = '{status}' WHERE id = '{row}'")
            assert await told(oauth, CREDENTIALS, ci.basic) == (found, error)
            wrong = basic(ci.access_key_id, WRONG)
            assert await told(oauth, CREDENTIALS, wrong) == (401, "invalid_client")


async def test_a_program_has_no_codes_to_show(oauth: World) -> None:
    """A right key with a grant that is not for it is told so; a wrong one as ever."""
    ci = await program(oauth)
    for grant in (
        {"grant_type": "authorization_code", "code": "x"},
        {"grant_type": "refresh_token", "refresh_token": "x"},
    ):
        assert await told(oauth, grant, ci.basic) == (400, "unauthorized_client")
        wrong = basic(ci.access_key_id, WRONG)
        assert await told(oauth, grant, wrong) == (401, "invalid_client")


async def test_a_token_goes_into_the_header_and_nothing_else_does(oauth: World) -> None:
    """Neither the query, nor the key pair, nor the retired signature."""
    ci = await program(oauth)
    token = await oauth.token_of(ci)
    signature = (
        f"SERVICE-HMAC-SHA256 Credential={ci.access_key_id}/20260101/global/service/"
        "service_request, SignedHeaders=host;x-date;x-nonce, Signature=" + "0" * 64
    )
    sigv4 = (
        f"AWS4-HMAC-SHA256 Credential={ci.access_key_id}/20260101/local/s3/aws4_request, "
        "SignedHeaders=host, Signature=" + "0" * 64
    )
    for path, headers in (
        (f"/v1/whoami?access_token={token}", {}),
        ("/v1/whoami", ci.basic),
        ("/v1/whoami", {"Authorization": signature}),
        ("/v1/whoami", {"Authorization": sigv4}),
        ("/v1/whoami", {"Authorization": f"Token {token}"}),
    ):
        answer = await oauth.request("GET", path, headers=headers)
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "UNAUTHORIZED"
        assert answer.headers["www-authenticate"].startswith("Bearer")

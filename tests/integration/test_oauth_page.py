"""The sign-in page: who may sign in, how often, and what a form proves."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import httpx
import pytest

from cloudcore.identity.oauth.pages import HEADERS
from tests.integration.oauth_world import (
    ISSUER,
    OUT_OF_BAND,
    PASSWORD,
    World,
    authorization_query,
    code_of,
    hidden_of,
    open_world,
)

EMAIL = "ann@example.com"
WRONG = "not the password"


async def test_the_page_loads_nothing_and_may_not_be_framed(oauth: World) -> None:
    page = await oauth.open_page()
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-store"
    for name, value in HEADERS.items():
        assert page.headers[name] == value
    assert not re.search(r"(?:src|href)=|<script|@import|url\(", page.text)
    cookie = page.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Path=/v1/oauth/authorize" in cookie
    assert "Secure" not in cookie  # over http on loopback


WRONG_QUERIES: Final[list[dict[str, str]]] = [
    {"response_type": "token"},
    {"response_type": ""},
    {"client_id": "other"},
    {"client_id": ""},
    {"redirect_uri": "https://attacker.example/"},
    {"redirect_uri": OUT_OF_BAND + ":auto"},
    {"redirect_uri": ""},
    {"redirect_uri": "http://127.0.0.1/callback"},
    {"redirect_uri": "http://127.0.0.1:0/callback"},
    {"redirect_uri": "http://127.0.0.1:65536/callback"},
    {"redirect_uri": "http://127.0.0.1:4000/"},
    {"redirect_uri": "http://127.0.0.1:4000/callback?x=1"},
    {"redirect_uri": "http://127.0.0.1:4000/callback\n"},
    {"redirect_uri": "https://127.0.0.1:4000/callback"},
    {"redirect_uri": "http://localhost:4000/callback"},
    {"redirect_uri": "http://127.0.0.2:4000/callback"},
    {"redirect_uri": "http://127.0.0.1:4000@attacker.example/callback"},
    {"redirect_uri": "http://[::2]:4000/callback"},
    {"redirect_uri": "http://127.0.0.1:4000/callback", "client_id": "console"},
    {"code_challenge": ""},
    {"code_challenge": "x" * 42},
    {"code_challenge": "x" * 44},
    {"code_challenge": "x" * 42 + "="},
    {"code_challenge_method": "plain"},
    {"code_challenge_method": ""},
]


async def test_what_is_asked_for_is_checked_and_not_redirected(oauth: World) -> None:
    """It is told on a page: the `redirect_uri` may be an attacker's, or leads nowhere."""
    for wrong in WRONG_QUERIES:
        page = await oauth.open_page(**wrong)
        assert page.status_code == 400, wrong
        assert "invalid_request" in page.text
        assert "<form" not in page.text
        assert "location" not in page.headers
        assert "set-cookie" not in page.headers


@pytest.mark.parametrize(
    ("redirect_uri", "source"),
    [
        ("http://127.0.0.1:4000/callback", "http://127.0.0.1:4000"),
        ("http://127.0.0.1:65535/callback", "http://127.0.0.1:65535"),
        ("http://[::1]:4000/callback", "http:"),
    ],
)
async def test_a_command_gets_its_code_by_a_redirect_to_loopback(
    oauth: World, redirect_uri: str, source: str
) -> None:
    await oauth.add_user(EMAIL, one_time=True)
    page = await oauth.open_page(redirect_uri=redirect_uri, state="a~state")
    wrong = await oauth.send_page(page, email=EMAIL, password=WRONG)
    choosing = await oauth.send_page(wrong, email=EMAIL, password=PASSWORD)
    differing = {"new_password": "a new password", "repeated_password": "another"}
    again = await oauth.send_page(choosing, **differing)
    for shown in (page, wrong, choosing, again):  # each may end in the redirect
        assert f"; form-action 'self' {source};" in shown.headers["content-security-policy"]
    chosen = {"new_password": "a new password", "repeated_password": "a new password"}
    done = await oauth.send_page(again, **chosen)
    assert (done.status_code, done.text) == (303, "")
    assert done.headers["cache-control"] == "no-store"
    location = httpx.URL(done.headers["location"])
    assert str(location.copy_with(query=None)) == redirect_uri
    assert location.params.keys() == {"code", "state"}
    assert location.params["state"] == "a~state"
    redeemed = await oauth.redeem(location.params["code"], redirect_uri=redirect_uri)
    assert redeemed.status_code == 200


async def test_a_code_of_one_port_is_not_for_another(oauth: World) -> None:
    await oauth.add_user(EMAIL)
    asked = {"redirect_uri": "http://127.0.0.1:4000/callback", "state": ""}
    done = await oauth.send_page(await oauth.open_page(**asked), email=EMAIL, password=PASSWORD)
    params = httpx.URL(done.headers["location"]).params
    assert params.keys() == {"code"}
    other = await oauth.redeem(params["code"], redirect_uri="http://127.0.0.1:4001/callback")
    assert other.json()["error"] == "invalid_grant"


async def test_a_parameter_given_twice_is_refused(oauth: World) -> None:
    query = authorization_query() | {"state": "a"}
    for twice in ("client_id", "redirect_uri", "state"):
        params = [*query.items(), (twice, query[twice])]
        page = await oauth.request("GET", "/v1/oauth/authorize", params=params)
        assert page.status_code == 400, twice
        assert "location" not in page.headers, twice


TOLD: Final = [
    ("response_type=token", "unsupported_response_type", "s~1"),
    ("response_type=", "invalid_request", "s~1"),
    ("code_challenge=", "invalid_request", "s~1"),
    ("code_challenge=x", "invalid_request", "s~1"),
    ("code_challenge_method=plain", "invalid_request", "s~1"),
    ("state=two%20words", "invalid_request", "two words"),
    ("state=%0d%0aLocation:%20x", "invalid_request", "\r\nLocation: x"),
    ("state=%ff", "invalid_request", None),
    ("state=", None, None),
]
"""Of a query that is right but for this: the error that its client is told, and the state."""


@pytest.mark.parametrize("client_id", ["cli", "console"])
async def test_a_known_client_is_told_by_a_redirect(oauth: World, client_id: str) -> None:
    """RFC 6749 §4.1.2.1."""
    own = "http://127.0.0.1:4000/callback"
    to = own if client_id == "cli" else f"{ISSUER}/console/signed-in"
    right = authorization_query() | {"client_id": client_id, "redirect_uri": to, "state": "s~1"}
    for wrong, error, state in TOLD:
        query = {name: text for name, text in right.items() if not wrong.startswith(f"{name}=")}
        answer = await oauth.request("GET", f"/v1/oauth/authorize?{urlencode(query)}&{wrong}")
        if error is None:
            assert answer.status_code == 200
        else:
            check_told(answer, to, error, state)


async def test_a_known_client_is_told_that_a_parameter_came_twice(oauth: World) -> None:
    to = "http://127.0.0.1:4000/callback"
    query = authorization_query() | {"redirect_uri": to, "state": "a"}
    path = f"/v1/oauth/authorize?{urlencode(query)}"
    once = await oauth.request("GET", f"{path}&code_challenge=x")
    check_told(once, to, "invalid_request", "a")
    check_told(await oauth.request("GET", f"{path}&state=b"), to, "invalid_request", None)


def check_told(answer: httpx.Response, to: str, error: str, state: str | None) -> None:
    """Check a refusal by a redirect to a client's address."""
    assert answer.status_code == 303
    location = httpx.URL(answer.headers["location"])
    assert str(location.copy_with(query=None)) == to
    assert location.params["error"] == error
    assert location.params["error_description"]
    assert location.params.get("state") == state
    assert "set-cookie" not in answer.headers


async def test_unknown_wrong_and_suspended_look_alike(oauth: World) -> None:
    """No answer tells whether an address has a person here."""
    await oauth.add_user(EMAIL)
    bob = await oauth.add_user("bob@example.com")
    await oauth.run(f"UPDATE users SET status = 'suspended' WHERE id = '{bob.id}'")
    seen = set()
    for email, password in (
        (EMAIL, WRONG),
        (EMAIL, ""),
        ("nobody@example.com", PASSWORD),
        ("no address at all", PASSWORD),
        ("bob@example.com", PASSWORD),
    ):
        answer = await oauth.send_page(await oauth.open_page(), email=email, password=password)
        text = answer.text.replace(email, "").replace(hidden_of(answer), "")
        headers = [
            k for k in answer.headers.items() if k[0] not in ("x-request-id", "content-length")
        ]
        seen.add((answer.status_code, text, *headers))
        assert PASSWORD not in answer.text
    assert [found[0] for found in seen] == [403]


async def test_what_was_typed_comes_back_as_text(oauth: World) -> None:
    answer = await oauth.send_page(
        await oauth.open_page(), email='"><script>alert(1)</script>', password=WRONG
    )
    assert answer.status_code == 403
    assert "<script" not in answer.text
    assert "&quot;&gt;&lt;script&gt;" in answer.text


async def test_the_eleventh_attempt_in_five_minutes_waits(oauth: World) -> None:
    await oauth.add_user(EMAIL)
    for _ in range(10):
        page = await oauth.open_page()
        assert (await oauth.send_page(page, email=EMAIL, password=WRONG)).status_code == 403
    for email in (EMAIL, EMAIL.upper()):  # the right password helps no more
        refused = await oauth.send_page(await oauth.open_page(), email=email, password=PASSWORD)
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 300
    page = await oauth.open_page()
    other = await oauth.send_page(page, email="bob@example.com", password=WRONG)
    assert other.status_code == 403
    oauth.peer = "203.0.113.9"
    assert (await oauth.send_page(page, email=EMAIL, password=PASSWORD)).status_code == 200
    oauth.peer = "198.51.100.7"
    oauth.pass_time(300)
    assert await oauth.sign_in(EMAIL)


async def test_a_form_is_good_in_its_own_browser_for_ten_minutes(oauth: World) -> None:
    await oauth.add_user(EMAIL)
    page = await oauth.open_page()
    mine = dict(oauth.cookies)
    oauth.cookies.clear()
    other = await oauth.open_page()
    theirs = dict(oauth.cookies)
    hidden = hidden_of(page)
    changed = hidden[:-8] + ("A" if hidden[-8] != "A" else "B") + hidden[-7:]
    filled = {"email": EMAIL, "password": PASSWORD}
    for form, cookies in (
        (hidden, {}),
        (hidden, theirs),
        (hidden, {"entrepot_sign_in": "x"}),
        (hidden_of(other), mine),
        (changed, mine),
        ("", mine),
        ("x", mine),
        ("!", mine),
    ):
        answer = await oauth.request(
            "POST", "/v1/oauth/authorize", data={"form": form, **filled}, cookies=cookies
        )
        assert answer.status_code == 403, (form, cookies)
        assert 'id="code"' not in answer.text, (form, cookies)
    oauth.pass_time(599)
    again = {"data": {"form": hidden, **filled}, "cookies": mine}
    assert (await oauth.request("POST", "/v1/oauth/authorize", **again)).status_code == 200
    oauth.pass_time(1)
    assert (await oauth.request("POST", "/v1/oauth/authorize", **again)).status_code == 403


async def test_a_form_that_cannot_be_read_is_refused(oauth: World) -> None:
    for body in (b"", b"{}", b"form=%ff", b"form=a&form=b"):
        answer = await oauth.request("POST", "/v1/oauth/authorize", content=body)
        assert answer.status_code == 400, body
        assert answer.headers["content-type"] == "text/html; charset=utf-8", body


async def test_a_one_time_password_is_replaced_before_it_gives_a_code(oauth: World) -> None:
    await oauth.add_user(EMAIL, one_time=True)
    page = await oauth.send_page(await oauth.open_page(), email=EMAIL, password=PASSWORD)
    assert page.status_code == 200
    assert 'id="code"' not in page.text
    for new, repeated, words in (
        ("my own long secret", "another long secret", "differ"),
        ("short", "short", "at least 12"),
        ("", "", "at least 12"),
        (PASSWORD, PASSWORD, "another password"),
    ):
        page = await oauth.send_page(page, new_password=new, repeated_password=repeated)
        assert page.status_code == 400
        assert words in page.text
    chosen = {"new_password": "my own long secret", "repeated_password": "my own long secret"}
    done = await oauth.send_page(page, **chosen)
    assert done.status_code == 200
    assert (await oauth.redeem(code_of(done))).status_code == 200
    assert (await oauth.send_page(page, **chosen)).status_code == 403  # for one change
    refused = await oauth.send_page(await oauth.open_page(), email=EMAIL, password=PASSWORD)
    assert refused.status_code == 403
    assert await oauth.sign_in(" Ann@Example.COM ", "my own long secret")


async def test_codes_and_passwords_are_not_kept_in_the_open(sqlite_database: str) -> None:
    async with open_world(sqlite_database) as oauth:
        await oauth.add_user(EMAIL)
        code = await oauth.sign_in(EMAIL)
        access, refresh = await oauth.signed_in(EMAIL)
        ci = await oauth.add_program(await oauth.add_account("acme"))
        material = oauth.keys.current("registry").key.as_dict(private=True)["k"]
        secrets = [code, access, refresh, ci.secret, PASSWORD, str(material)]
    path = sqlite_database.removeprefix("sqlite:///")
    kept = b"".join(
        file.read_bytes() for file in Path(path).parent.glob("metadata.db*") if file.is_file()
    )
    assert b"acme" in kept
    for secret in secrets:
        assert secret.encode() not in kept

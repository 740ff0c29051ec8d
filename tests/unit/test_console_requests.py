"""Requests to the console: strangers, unknown paths, roles that refuse, rights, pages of a list."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl

import httpx
import pytest

from cloudcore.family import Family
from cloudcore.iam.vocabulary import ResourceKind
from cloudcore.keyring import Keyring
from registry.composition.families import FAMILIES
from registry.console.addresses import HOME, ROLES, SIGNED_OUT, page_links
from registry.console.app import Console, litestar_app
from registry.console.page_request import ConsoleSettings
from registry.console.rights import Rights, RightsQuestions
from registry.console.sessions import COOKIE, Acting, ConsoleSession, CookieJar, Token

ID = "01a1fe0c-d624-783e-a91d-7a6ce23df8b5"
KEYRING = Keyring(bytes(32))
URL = "http://registry.test"


def console_over(control: Callable[[Any, Any, Any], Awaitable[None]]) -> Console:
    """Return a console whose sessions need no renewal."""

    async def once(*_: object) -> bytes | None:
        raise AssertionError("a session was renewed")

    settings = ConsoleSettings(URL, "registry.test", "local", FAMILIES)
    return Console(control, settings, keyring=KEYRING, clock=lambda: 0, once=once)


@pytest.fixture
def console() -> Console:
    """Return a console without sign-ins over a ``/v1`` that must not be asked."""

    async def control(*_: object) -> None:
        raise AssertionError("/v1 was asked")

    return console_over(control)


def browser_of(console: Console) -> httpx.AsyncClient:
    async def answered(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
        scope["state"] = {"request_id": "00000000-0000-4000-8000-000000000000"}
        await console(scope, receive, send)

    return httpx.AsyncClient(transport=httpx.ASGITransport(answered), base_url=URL)


def ask(console: Console, method: str, path: str) -> httpx.Response:
    async def run() -> httpx.Response:
        async with browser_of(console) as browser:
            return await browser.request(method, httpx.URL(f"{URL}{path}"))

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"{HOME}/{ID}"),
        ("GET", f"{HOME}/deleted"),
        ("GET", f"{HOME}/{ID}/images/sha256:{'0a' * 32}"),
        ("HEAD", f"{HOME}/{ID}/tags/1.0"),
        ("POST", f"{HOME}/{ID}/images/sha256:00/pins/prod/delete"),
        ("GET", "/console/settings/events"),
        ("GET", "/console/audit"),
        ("GET", f"/console/people/{ID}/audit"),
        ("GET", f"/console/people/{ID}/identity-providers"),
        ("POST", f"/console/people/{ID}/identity-providers/{ID}/delete"),
    ],
)
def test_a_page_asks_a_stranger_to_sign_in(console: Console, method: str, path: str) -> None:
    answer = ask(console, method, path)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith(("/console/sign-in?to=", "/console/signed-out"))
    assert answer.headers["set-cookie"].startswith("entrepot_console=; ")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(
            ("GET", f"{HOME}/{path}")
            for path in (
                f"{ID[:-1]}/tags/a",
                f"{ID}/tags/a/b",
                f"{ID}/tags/",
                f"{ID}/tags//a",
                f"{ID}//tags/a",
                f"{ID}/tags/.a",
                f"{ID}/tags/a%2fb",
                f"{ID}/tags/a%0a",
                f"{ID}/t%61gs/a",
                f"{ID}/images/sha256:..%2f..",
                "",
            )
        ),
        ("GET", "/console//"),
        ("GET", "/console/people/x/identity-providers"),
        ("GET", f"/console/people/{ID}/identity-providers/x"),
        ("POST", f"/console/account-roles/{ID}/groups/x/delete"),
        ("GET", f"/console/x/r/{ID}/tags/a"),
        ("POST", f"{HOME}/{ID}/images/sha256:00"),
        ("PUT", HOME),
        ("OPTIONS", HOME),
        ("GET", "/console/static/..%2fapp.py"),
    ],
)
def test_paths_are_matched_whole_and_strictly(console: Console, method: str, path: str) -> None:
    answer = ask(console, method, path)
    assert answer.status_code == 404
    assert "here is no such page" in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


def test_the_root_and_the_first_page_need_no_sign_in(console: Console) -> None:
    for path, there in (("/", "/console"), ("/console", HOME), ("/console/", HOME)):
        answer = ask(console, "GET", path)
        assert (answer.status_code, answer.headers["location"]) == (303, there)


@pytest.mark.parametrize("origin", ["http://[", "http://registry.test:x", "http://registry.test/"])
async def test_a_form_of_a_malformed_origin_is_refused(console: Console, origin: str) -> None:
    session = ConsoleSession("3", "ann@example.com", "csrf", 1, Token("", 1), "")
    cookie = CookieJar(KEYRING, URL).seal(COOKIE, session).partition(";")[0]
    async with browser_of(console) as browser:
        headers = {"Origin": origin, "Cookie": cookie}
        answer = await browser.post(HOME, data={"csrf": "csrf"}, headers=headers)
    assert (answer.status_code, "from another site" in answer.text) == (403, True)


def console_of_one_role(answer: tuple[int, object]) -> Console:
    """Return a console over a ``/v1`` whose only role answers so to whoever assumes it."""
    role = {"id": ID, "name": "admin", "account": {"id": ID, "crn": "", "name": "acme"}}
    tokens = {"access_token": "person", "expires_in": 3600, "refresh_token": "refresh"}
    myself = {"id": ID, "crn": "crn:iam::o:user/ann", "email": "ann@example.com"}
    answers: dict[str, tuple[int, object]] = {
        "/v1/oauth/token": (200, tokens),
        "/v1/oauth/revoke": (200, {}),
        "/v1/users/me": (200, {"user": myself}),
        "/v1/users/me/roles": (200, {"roles": [role], "meta": {"has_more": False}}),
        "/v1/assume-role": answer,
    }

    async def control(scope: Any, _receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
        status, document = answers[scope["path"]]
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(document).encode()})

    return console_over(control)


def refusal(code: str, message: str) -> object:
    return {"error": {"code": code, "message": message, "request_id": ID}}


async def finished_sign_in(browser: httpx.AsyncClient) -> httpx.Response:
    """Return the answer to the redirect that ends a sign-in."""
    begun = await browser.get("/console/sign-in")
    state = httpx.URL(begun.headers["location"]).params["state"]
    return await browser.get("/console/signed-in", params={"state": state, "code": "code"})


async def test_an_only_role_that_refuses_is_explained_and_one_can_sign_out() -> None:
    """A redirect to the roles would lead back to the same role, again and again."""
    no_trust = refusal("ACCESS_DENIED", "you may not assume this role: no trust")
    async with browser_of(console_of_one_role((403, no_trust))) as browser:
        shown = await finished_sign_in(browser)
        token = re.findall(r'name="csrf" value="([^"]*)"', shown.text)[-1]
        chosen = await browser.post(ROLES, data={"csrf": token, "role": ID})
        for page in (shown, chosen):
            assert page.status_code == 403
            for words in ("The role admin of acme", "no trust.", "ann@example.com"):
                assert words in page.text
            assert "crn:iam::o:user/ann" in page.text
            assert (
                '<form method="post" action="/console/sign-out">' in page.text.partition("main")[2]
            )
        roles = await browser.get(ROLES)
        assert (roles.status_code, "ann@example.com" in roles.text) == (200, True)
        left = await browser.post("/console/sign-out", data={"csrf": token})
        assert (left.status_code, left.headers["location"]) == (303, SIGNED_OUT)


async def test_a_role_that_refuses_later_is_explained_on_the_page_that_needs_it() -> None:
    console = console_of_one_role((403, refusal("ACCESS_DENIED", "no trust any more")))
    person, over = Token("person", 1 << 60), Token("role", 0)
    acting = Acting(ID, "admin", ID, "acme", over)
    session = ConsoleSession(ID, "ann@example.com", "csrf", 1 << 60, person, "refresh", acting)
    cookie = CookieJar(KEYRING, URL).seal(COOKIE, session).partition(";")[0]
    async with browser_of(console) as browser:
        shown = await browser.get(HOME, headers={"Cookie": cookie})
    assert (shown.status_code, "No trust any more." in shown.text) == (403, True)
    assert 'aria-label="Console"' not in shown.text  # no menu of pages that would refuse too


async def test_a_role_of_a_suspended_account_is_no_matter_of_its_trust() -> None:
    suspended = refusal("ACCESS_DENIED", "you may not assume this role: its account is suspended")
    async with browser_of(console_of_one_role((403, suspended))) as browser:
        shown = await finished_sign_in(browser)
    assert (shown.status_code, "nobody works in it" in shown.text) == (403, True)
    assert "trust policy" not in shown.text


async def test_a_role_that_is_gone_meanwhile_leads_to_those_there_are() -> None:
    gone = refusal("NOT_FOUND", "there is no such role")
    async with browser_of(console_of_one_role((404, gone))) as browser:
        done = await finished_sign_in(browser)
        assert (done.status_code, done.headers["location"]) == (303, ROLES)


def test_all_installs_of_a_process_share_one_table_of_routes() -> None:
    assert litestar_app(FAMILIES) is litestar_app(FAMILIES)


HOST_POOL = ResourceKind(
    crn="crn:host:<region>:<account>:pool/<name>", actions=("host:GrowPool", "host:ListPools")
)
MAIL_POOL = ResourceKind(
    crn="crn:mail:<region>:<account>:pool/<name>", actions=("mail:ListPools", "mail:WarmPool")
)
ASKED = RightsQuestions(
    [
        Family[None](name="host", resource_kinds=(HOST_POOL,)),
        Family[None](name="mail", resource_kinds=(MAIL_POOL,)),
    ],
    region="local",
)
ONE = "crn:mail:local:a:pool/first"


def test_two_families_may_have_a_type_of_one_name() -> None:
    assert ASKED.questions("a", [ONE]) == [
        {"resource": "crn:host:local:a:pool/*", "actions": HOST_POOL.actions},
        {"resource": "crn:mail:local:a:pool/*", "actions": MAIL_POOL.actions},
        {"resource": ONE, "actions": MAIL_POOL.actions},
    ]


def test_a_right_on_a_type_is_that_of_the_family_whose_action_it_is() -> None:
    mail = {"resource": "crn:mail:local:a:pool/*", "actions": ["mail:WarmPool"]}
    host = {"resource": "crn:host:local:a:pool/*", "actions": []}
    answers = [{**each, "on_some": each["actions"]} for each in (host, mail)]
    rights = Rights(ASKED, "a", answers)
    assert rights.may_all("mail:WarmPool")
    assert rights.may_some("mail:WarmPool", "pool")
    assert not rights.may_all("host:GrowPool")
    assert not rights.may_some("host:GrowPool", "pool")
    assert not rights.may_all("mail:ListPools")


def walked(pages: int) -> list[dict[str, str]]:
    """Return the queries of the pages that the link to the next one leads to."""
    queries: list[dict[str, str]] = [{}]
    for number in range(1, pages):
        after = page_links(queries[-1], {"has_more": True, "marker": f"m{number}"}).after
        assert after
        queries.append(dict(parse_qsl(after)))
    return queries


def test_each_page_leads_back_to_the_one_before() -> None:
    last: dict[str, Any] = {"has_more": False}
    queries = walked(5)
    assert page_links(queries[0], last) == (None, None)
    for query, earlier in zip(queries[1:], queries, strict=False):
        before = page_links(query, last).before
        assert before is not None
        assert dict(parse_qsl(before)) == earlier


def test_an_address_keeps_so_many_pages_and_no_more() -> None:
    queries = walked(60)
    assert max(len(str(query)) for query in queries) < 200
    seen, query = 0, queries[-1]
    while (before := page_links(query, {"has_more": False}).before) is not None:
        query, seen = dict(parse_qsl(before)), seen + 1
    assert seen == 20
    assert query["marker"] == "m39", "the page before it is not known any more"


def test_a_marker_without_a_way_there_leads_nowhere_back() -> None:
    assert page_links({"marker": "m"}, {"has_more": False}).before is None
    on = dict(parse_qsl(page_links({"marker": "m"}, {"has_more": True, "marker": "n"}).after or ""))
    assert dict(parse_qsl(page_links(on, {"has_more": False}).before or "")) == {"marker": "m"}

"""The console against whoever means ill: forged forms, foreign cookies, ways to elsewhere."""

from __future__ import annotations

import html
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import msgspec
import pytest

from registry.console.sessions import COOKIE, ConsoleSession, CookieJar, Token
from tests.clients.console_visitors import HOME, Site, Visitor, found_in
from tests.clients.images import OCI
from tests.entrepot import ADMIN, PASSWORD
from tests.integration.page_transcripts import check_defence

SIGN_IN_COOKIE = "entrepot_console_sign_in"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture
def visitor(site: Site) -> Iterator[Visitor]:
    with site.visitor() as stranger:
        yield stranger


@pytest.fixture(scope="module")
def signed_in(site: Site) -> str:
    """Return the cookie of a sign-in that no test may end."""
    with site.visitor() as first:
        assert first.sign_in().headers["location"] == HOME
        return first.http.cookies[COOKIE]


@pytest.fixture
def admin(visitor: Visitor, signed_in: str) -> Visitor:
    visitor.http.cookies.set(COOKIE, signed_in, domain="127.0.0.1", path="/console")
    return visitor


@pytest.mark.parametrize(
    ("path", "status"), [(HOME, 200), ("/console/no", 404), ("/console/static/x.js", 404)]
)
def test_each_answer_defends_itself(admin: Visitor, path: str, status: int) -> None:
    answer = admin.http.get(path)
    assert answer.status_code == status
    check_defence(answer)
    assert answer.headers["x-request-id"]


def test_no_cookie_shows_a_token(admin: Visitor) -> None:
    session = admin.session
    assert session.acting is not None
    raw = admin.http.cookies.get(COOKIE) or ""
    page = admin.http.get(HOME)
    assert "set-cookie" not in page.headers
    for secret in (session.person.value, session.refresh_token, session.acting.token.value):
        assert secret not in raw + page.text


def test_cookies_are_for_the_console_alone(site: Site, visitor: Visitor) -> None:
    signed = visitor.sign_in()
    begun = visitor.http.get("/console/sign-in")
    for cookie in (*signed.headers.get_list("set-cookie"), *begun.headers.get_list("set-cookie")):
        parts = set(cookie.split("; ")[1:])
        assert {"Path=/console", "HttpOnly", "SameSite=Lax"} <= parts
    secure = CookieJar(site.keyring, "https://registry.example.com")
    assert "; Secure" in secure.seal(COOKIE, Token("", 0))


def test_a_form_of_another_site_does_nothing(admin: Visitor) -> None:
    good = {"csrf": admin.session.csrf, "name": "forged"}
    forgeries: list[tuple[dict[str, str], dict[str, str]]] = [
        ({"name": "forged"}, {}),
        ({"name": "forged", "csrf": "x" * 43}, {}),
        (good, {"Origin": "https://evil.example"}),
        (good, {"Origin": "null"}),
        (good, {"Origin": admin.site.url + ".evil.example"}),
    ]
    for fields, headers in forgeries:
        answer = admin.http.post(HOME, data=fields, headers=headers)
        assert answer.status_code == 403, (fields, headers)
        assert "ACCESS_DENIED" in answer.text
    assert "forged" not in admin.http.get(HOME).text
    made = admin.http.post(HOME, data=good, headers={"Origin": admin.site.url})
    assert "The repository is there." in admin.told(made)


def test_one_persons_token_is_not_anothers(site: Site, admin: Visitor) -> None:
    with site.visitor() as other:
        other.sign_in()
        answer = admin.http.post(HOME, data={"csrf": other.session.csrf, "name": "mixed"})
    assert answer.status_code == 403


@pytest.mark.parametrize("to", ["//evil.example/console", "/v1/repositories", ""])
def test_the_sign_in_leads_nowhere_else(visitor: Visitor, to: str) -> None:
    assert visitor.sign_in(to).headers["location"] == HOME


def test_the_sign_in_leads_back(visitor: Visitor) -> None:
    wanted = "/console/repositories?prefix=a%2Fb"
    asked = visitor.http.get(wanted)
    assert asked.status_code == 303
    assert httpx.URL(asked.headers["location"]).params["to"] == wanted
    assert visitor.sign_in(wanted).headers["location"] == wanted


@pytest.mark.parametrize(
    "change",
    [
        {"redirect_uri": "https://evil.example/console/signed-in"},
        {"redirect_uri": "urn:ietf:wg:oauth:2.0:oob"},
        {"redirect_uri": "//evil.example"},
        {"client_id": "Console"},
    ],
)
def test_an_authorization_request_is_ours_or_a_page(
    site: Site, visitor: Visitor, change: dict[str, str]
) -> None:
    begun = httpx.URL(visitor.http.get("/console/sign-in").headers["location"])
    assert begun.params["redirect_uri"] == f"{site.url}/console/signed-in"
    answer = visitor.http.get(begun.copy_merge_params(change))
    assert answer.status_code == 400
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    "change", [{"state": "x" * 513}, {"state": "a b"}, {"code_challenge_method": "plain"}]
)
def test_an_authorization_request_with_a_bad_parameter_leads_back_with_an_error(
    site: Site, visitor: Visitor, change: dict[str, str]
) -> None:
    begun = httpx.URL(visitor.http.get("/console/sign-in").headers["location"])
    answer = visitor.http.get(begun.copy_merge_params(change))
    assert answer.status_code == 303
    back = httpx.URL(answer.headers["location"])
    assert str(back.copy_with(query=None)) == f"{site.url}/console/signed-in"
    assert back.params["error"] == "invalid_request"
    shown = visitor.http.get(back)
    assert shown.status_code < 500


def test_a_code_is_for_the_browser_that_asked(site: Site, visitor: Visitor) -> None:
    visitor.http.get("/console/sign-in")
    with site.visitor() as other:
        page = other.http.get("/console/sign-in", follow_redirects=True)
        hidden = html.unescape(found_in(r'name="form" value="([^"]*)"', page.text))
        fields = {"form": hidden, "email": ADMIN, "password": PASSWORD}
        there = other.http.post("/v1/oauth/authorize", data=fields).headers["location"]
    answer = visitor.http.get(there)  # as a link in a mail would
    assert answer.status_code == 400
    assert "did not begin that sign-in" in answer.text
    assert COOKIE not in visitor.http.cookies
    code = httpx.URL(there).params["code"]
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "code_verifier": "v" * 43,
        "client_id": "cli",
        "redirect_uri": "urn:ietf:wg:oauth:2.0:oob",
    }
    redeemed = visitor.http.post("/v1/oauth/token", data=form)
    assert redeemed.json()["error"] == "invalid_grant"


def test_a_cookie_for_all_of_the_host_is_not_ours(admin: Visitor) -> None:
    both = f"{COOKIE}={admin.http.cookies[COOKIE]}; {COOKIE}=planted"
    admin.http.cookies.clear()
    assert admin.http.get(HOME, headers={"Cookie": both}).status_code == 200


def test_a_cookie_is_not_too_large_for_a_browser(admin: Visitor) -> None:
    session = msgspec.structs.replace(admin.session, email=f"{'e' * 242}@example.com")
    assert session.acting is not None
    acting = msgspec.structs.replace(session.acting, role="r" * 64, account="a" * 32)
    whole = msgspec.structs.replace(session, acting=acting)
    assert len(admin.site.jar.seal(COOKIE, whole)) < 4096


@pytest.mark.parametrize("cookie", ["", "x", "AQ==", "=" * 40, "%00", "é".encode().hex()])
def test_a_foreign_cookie_is_none(visitor: Visitor, cookie: str) -> None:
    visitor.http.cookies.set(COOKIE, cookie, path="/console")
    answer = visitor.http.get(HOME)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/console/sign-in?to=")


def test_the_cookie_of_the_sign_in_is_no_session(visitor: Visitor) -> None:
    visitor.http.get("/console/sign-in")
    begun = visitor.http.cookies.get(SIGN_IN_COOKIE)
    assert begun
    visitor.http.cookies.set(COOKIE, begun, path="/console")
    assert visitor.http.get(HOME).status_code == 303


def test_a_session_ends_with_the_day(admin: Visitor) -> None:
    admin.keep(msgspec.structs.replace(admin.session, ends_at=1))
    answer = admin.http.get(HOME)
    assert answer.headers["location"].startswith("/console/sign-in")
    assert f"{COOKIE}=; " in answer.headers["set-cookie"]
    assert "Max-Age=0" in answer.headers["set-cookie"]


def _expired(session: ConsoleSession) -> ConsoleSession:
    assert session.acting is not None
    acting = msgspec.structs.replace(session.acting, token=Token("over", 1))
    return msgspec.structs.replace(session, person=Token("over", 1), acting=acting)


def test_tokens_are_renewed_once_for_all_who_ask_at_once(visitor: Visitor) -> None:
    admin = visitor
    admin.sign_in()
    old = _expired(admin.session)
    admin.keep(old)
    headers = {"Cookie": f"{COOKIE}={admin.http.cookies[COOKIE]}"}

    def ask(_: int) -> int:
        return httpx.get(admin.site.url + HOME, headers=headers, timeout=60).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(ask, range(8))) == {200}
    assert admin.http.get(HOME).status_code == 200
    renewed = admin.session
    assert renewed.refresh_token != old.refresh_token
    # A window that slept meanwhile still has the first cookie; its way leads on over both.
    admin.keep(_expired(renewed))
    assert admin.http.get(HOME).status_code == 200
    admin.keep(old)
    assert admin.http.get(HOME).status_code == 200


def test_a_page_that_calls_as_the_person_too_renews_that_token(visitor: Visitor) -> None:
    visitor.sign_in()
    visitor.keep(msgspec.structs.replace(visitor.session, person=Token("over", 1)))
    assert visitor.http.get(HOME).status_code == 200
    assert visitor.session.person.value == "over"  # the role's token is enough
    page = visitor.http.get("/console/audit")
    assert (page.status_code, "Organization main" in page.text) == (200, True)
    assert visitor.session.person.value != "over"


def test_signing_out_ends_every_copy(visitor: Visitor) -> None:
    admin = visitor
    admin.sign_in()
    session = admin.session
    copy = admin.http.cookies.get(COOKIE)
    assert copy
    assert admin.http.post("/console/sign-out").status_code == 403
    assert admin.send("/console/sign-out").headers["location"] == "/console/signed-out"
    assert COOKIE not in admin.http.cookies
    assert "Signed out" in admin.http.get("/console/signed-out").text
    admin.http.cookies.set(COOKIE, copy, path="/console")
    assert admin.http.get(HOME).status_code == 303
    admin.keep(_expired(session))
    assert admin.http.get(HOME).status_code == 303


def test_a_role_says_what_may_be_done(site: Site, visitor: Visitor) -> None:
    call = site.pusher.call
    visitor.sign_in()
    user_id = visitor.session.user_id
    roles = call("GET", "/v1/roles")["roles"]
    trust = next(each["trust_policy"] for each in roles if each["name"] == "admin")
    made = call("POST", "/v1/roles", {"name": "reader", "trust_policy": trust})
    role_id = made["role"]["id"]
    document = {
        "version": "1",
        "statements": [
            {
                "effect": "allow",
                "actions": ["registry:DescribeRepositories"],
                "resources": ["*"],
            }
        ],
    }
    policy = call("POST", "/v1/policies", {"name": "reading", "document": document})
    call("POST", f"/v1/policies/{policy['policy']['id']}/attachments", {"role": role_id})
    call("POST", f"/v1/roles/{role_id}/assignments", {"user": user_id})
    try:
        repository = site.pusher.repository("seen-by-reader")
        assert visitor.sign_in().headers["location"].startswith("/console/roles?to=")
        assert "as reader" in visitor.http.get("/console/roles").text
        chosen = visitor.send("/console/roles", role=role_id, to=HOME)
        assert chosen.headers["location"] == HOME
        assert "seen-by-reader" in visitor.http.get(HOME).text
        refused = visitor.http.get(f"{HOME}/{repository}")
        assert refused.status_code == 403
        assert "You may not do registry:DescribeImages here: " in refused.text
        assert f"request <code>{refused.headers['x-request-id']}</code>" in refused.text
        assert visitor.send(HOME, name="not-by-reader").status_code == 403
        assert visitor.send("/console/roles", role="no role").headers["location"] == (
            "/console/roles"
        )
    finally:
        call("DELETE", f"/v1/roles/{role_id}")
    gone = visitor.http.get(HOME)
    assert gone.status_code == 303  # the role's sessions have ended


def test_the_root_is_the_consoles_for_browsers_only(visitor: Visitor) -> None:
    for accepted in ("text/html,application/xhtml+xml", "*/*;q=0.8, Text/HTML ;q=0.9"):
        for method in ("GET", "HEAD"):
            browser = visitor.http.request(method, "/", headers={"Accept": accepted})
            assert (browser.status_code, browser.headers["location"]) == (303, "/console")
    for accepted in ("*/*", "application/json, text/html;q=0", "x/text/html", "text/htmlx"):
        program = visitor.http.get("/", headers={"Accept": accepted})
        assert program.status_code == 404
    assert visitor.http.post("/", headers={"Accept": "text/html"}).status_code == 404
    assert visitor.http.get("/", headers={"Accept": "*/*"}).json()["error"]["code"] == "NOT_FOUND"
    assert visitor.http.get("/consoles").json()["error"]["code"] == "NOT_FOUND"


def test_odd_requests_have_plain_answers(admin: Visitor) -> None:
    http, csrf = admin.http, admin.session.csrf
    head = http.head(HOME)
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) > 1000
    assert http.put(HOME).status_code == 404
    assert http.post("/console/storage", data={"csrf": csrf}).status_code == 404
    assert http.post(HOME, json={"csrf": csrf}).status_code == 400
    assert http.post(HOME, data={"csrf": csrf, "name": "x" * 70_000}).status_code == 413
    assert http.post(HOME, content="a=1&a=2", headers=FORM).status_code == 400
    assert http.get(HOME, params={"marker": "made up"}).status_code == 400
    assert http.get(HOME + "?" + "a=1&" * 40).status_code == 400
    assert http.get(f"{HOME}/00000000-0000-0000-0000-000000000000").status_code == 404
    assert http.get(f"{HOME}/not-an-id").status_code == 404
    assert admin.send(HOME, name="Not A Name").status_code == 400
    assert admin.send(HOME, name="dup").status_code == 303
    conflict = admin.send(HOME, name="dup")
    assert conflict.status_code == 409
    assert "There is a repository of this name." in conflict.text


@pytest.mark.parametrize(
    "config",
    [
        b"",
        b"\xff\x00",
        b"[" * 50_000,
        b'{"os": 1, "architecture": []}',
        b'{"os": "linux", "history": null, "config": {"Entrypoint": null}}',
        b'{"os": "linux", "created": "never", "history": [{"created_by": "A"}]}',
        b'{"os": "' + b"x" * (1 << 20) + b'"}',
    ],
    ids=["empty", "binary", "deep", "other-types", "nulls", "odd", "large"],
)
def test_an_image_can_be_shown_whatever_its_configuration_is(
    site: Site, admin: Visitor, config: bytes, request: pytest.FixtureRequest
) -> None:
    name = f"odd/{request.node.callspec.id}"
    repository = site.pusher.repository(name)
    document = {
        "schemaVersion": 2,
        "mediaType": OCI.manifest,
        "config": site.pusher.blob(name, config, OCI.config),
        "layers": [site.pusher.blob(name, b"layer", OCI.layer)],
    }
    made = site.pusher.manifest(name, document, "odd")
    page = admin.http.get(f"{HOME}/{repository}/images/{made['digest']}")
    assert page.status_code == 200
    assert ">Layers<" in page.text
    assert (">Configuration<" in page.text) == (b'"linux"' in config)
    assert admin.http.get(f"{HOME}/{repository}").status_code == 200


def test_files_are_kept_as_long_as_they_are_the_same(visitor: Visitor) -> None:
    page = visitor.http.get("/console/signed-out").text
    style = found_in(r'href="(/console/static/console.css[^"]*)"', page)
    kept = visitor.http.get(style)
    assert "immutable" in kept.headers["cache-control"]
    assert kept.headers["content-type"] == "text/css; charset=utf-8"
    bare = visitor.http.get("/console/static/console.css?v=other")
    assert bare.headers["cache-control"] == "no-cache"
    script = visitor.http.get("/console/static/console.js")
    assert script.headers["content-type"] == "text/javascript"

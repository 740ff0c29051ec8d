"""Forty ways in which an upstream tries to get credentials sent elsewhere.

The canary is the credential of a rule. It may reach the upstream, and its own realm; no other host,
port or scheme.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final, NamedTuple

import pytest

from registry.oci.digest import Digest
from registry.upstream.base import NotUpstream, UpstreamFailed
from tests.scripted_upstream import (
    INDEX,
    Answer,
    Asked,
    ScriptedUpstream,
    digest_of,
    error,
    scripted_upstream,
)
from tests.upstream_world import CANARY, Asking, ask_of

LAYER: Final = b"layer" * 100
NAME: Final = "library/alpine"
SPELLINGS: Final = (CANARY, base64.b64encode(f"user:{CANARY}".encode()).decode(), "token-")


class Place(NamedTuple):
    """The upstream, and a listener elsewhere that the operator has listed too."""

    upstream: ScriptedUpstream
    elsewhere: ScriptedUpstream


Lie = Callable[[Place, Asked], Answer | None]


class Case(NamedTuple):
    lie: Lie
    is_answered: bool = False
    """True if the client gets what it wanted all the same."""
    auth: str = "bearer"
    question: str = "blob"


def realm(text: str) -> Lie:
    """Name another realm; {up} and {else} are host and port."""
    return challenge(f'Bearer realm="{text}",service="upstream",scope="repository:{NAME}:pull"')


def challenge(text: str) -> Lie:
    def lie(place: Place, asked: Asked) -> Answer | None:
        if not asked.path.startswith("/v2/"):
            return None
        return error(401, "UNAUTHORIZED", {"WWW-Authenticate": filled(text, place)})

    return lie


def token(answer: Answer) -> Lie:
    def lie(place: Place, asked: Asked) -> Answer | None:
        if asked.path != "/token":
            return None
        headers = {name: value and filled(value, place) for name, value in answer.headers.items()}
        return Answer(answer.status, headers, answer.body)

    return lie


def json_token(text: str) -> Lie:
    return token(Answer(200, {"Content-Type": "application/json"}, text.encode()))


def redirect(text: str, status: int = 307, path: str = "/blobs/") -> Lie:
    def lie(place: Place, asked: Asked) -> Answer | None:
        if path not in asked.path or place.upstream.truth(asked).status == 401:
            return None
        return Answer(status, {"Location": filled(text, place)})

    return lie


def filled(text: str, place: Place) -> str:
    blob = f"/v2/{NAME}/blobs/{digest_of(LAYER)}"
    names = {"{up}": place.upstream.host, "{else}": place.elsewhere.host, "{blob}": blob}
    for name, value in names.items():
        text = text.replace(name, value)
    return text


def linked(place: Place, asked: Asked) -> Answer | None:
    if "/referrers/" not in asked.path or place.upstream.truth(asked).status == 401:
        return None
    link = f'<http://{place.elsewhere.host}{asked.path}?n=1>; rel="next"'
    return Answer(200, {"Content-Type": INDEX, "Link": link}, b'{"manifests": []}')


def cookie(place: Place, asked: Asked) -> Answer | None:
    truth = place.upstream.truth(asked)
    more = {
        "Set-Cookie": "session=1; Domain=127.0.0.1",
        "Alt-Svc": f'h2="{place.elsewhere.host}"; ma=86400',
        "Refresh": f"0; url=http://{place.elsewhere.host}/",
        "Content-Location": f"http://{place.elsewhere.host}/",
        "Location": f"http://{place.elsewhere.host}/",
    }
    return Answer(truth.status, {**truth.headers, **more}, truth.body)


ELSE: Final = "http://{else}/token"

CASES: Final = {
    # Realms.
    "a realm on another port": Case(realm(ELSE)),
    "a realm of another scheme": Case(realm("https://{up}/token")),
    "a realm behind a user name": Case(realm("http://{up}@{else}/token")),
    "a realm behind a backslash": Case(realm("http://{up}\\\\@{else}/token")),
    "a realm with the upstream in its query": Case(realm("http://{else}/?http://{up}/token")),
    "a realm with a fragment": Case(realm("http://{else}#{up}/token")),
    "a realm without a scheme": Case(realm("//{else}/token")),
    "a realm that is a path": Case(realm("/token")),
    "an empty realm": Case(realm("")),
    "a realm of a file": Case(realm("file:///etc/passwd")),
    "a realm of gopher": Case(realm("gopher://{else}/_token")),
    "a realm at a metadata service": Case(realm("http://169.254.169.254/latest")),
    "a realm at a metadata service over https": Case(realm("https://169.254.169.254/latest")),
    "a realm on loopback": Case(realm("https://127.0.0.1/token")),
    "a realm on loopback in IPv6": Case(realm("https://[::1]/token")),
    "a realm on localhost": Case(realm("http://localhost/token")),
    "a realm on a number": Case(realm("https://2130706433/token")),
    "a realm on a mapped address": Case(realm("https://[::ffff:127.0.0.1]/token")),
    "a realm with a space": Case(realm("http://{up} {else}/token")),
    "a realm in capitals of another port": Case(realm("HTTP://{else}/TOKEN")),
    "two realms": Case(challenge('Bearer realm="http://{up}/token",realm="http://{else}/token"')),
    "a second challenge of another realm": Case(
        challenge('Bearer realm="http://{else}/token", Basic realm="a"')
    ),
    "an unfinished realm": Case(challenge('Bearer realm="http://{else}/token')),
    "a challenge of an unknown scheme": Case(challenge('Negotiate realm="http://{else}/"')),
    "a challenge of many kilobytes": Case(challenge("Bearer " + 'a="b",' * 5000)),
    # Places of tokens.
    "a realm that redirects": Case(token(Answer(302, {"Location": ELSE}))),
    "a realm that redirects and keeps the method": Case(token(Answer(307, {"Location": ELSE}))),
    "a realm that redirects for good": Case(token(Answer(308, {"Location": ELSE}))),
    "a realm that wants a token": Case(
        token(error(401, "UNAUTHORIZED", {"WWW-Authenticate": f'Bearer realm="{ELSE}"'}))
    ),
    "a token with a line break": Case(json_token('{"token": "a\\r\\nX-Evil: b"}')),
    "a token that is no text": Case(json_token('{"token": {"a": 1}}')),
    "a token in a page": Case(json_token("<html>token</html>")),
    "a token of many levels": Case(json_token('{"token": ' + "[" * 20_000)),
    "a token of a megabyte": Case(json_token('{"token": "' + "a" * 1_000_000 + '"}')),
    # Redirects.
    "a redirect to another port": Case(redirect("http://{else}{blob}"), is_answered=True),
    "a redirect for good": Case(redirect("http://{else}{blob}", 308), is_answered=True),
    "a redirect to see": Case(redirect("http://{else}{blob}", 303), is_answered=True),
    "a redirect to another port with Basic": Case(
        redirect("http://{else}{blob}", 302), is_answered=True, auth="basic"
    ),
    "a redirect without a scheme": Case(redirect("//{else}{blob}"), is_answered=True),
    "a redirect there and back": Case(redirect("http://{else}/back")),
    "a redirect to where a credential is wanted": Case(redirect("http://{else}/wants")),
    "a redirect to where a token is wanted": Case(redirect("http://{else}/bearer")),
    "a redirect with a user name": Case(redirect("http://user:secret@{else}{blob}")),
    "a redirect to a metadata service": Case(redirect("https://169.254.169.254/")),
    "a redirect to loopback": Case(redirect("https://[::1]{blob}")),
    "a redirect to plain HTTP": Case(redirect("http://things.example.com{blob}")),
    "a redirect to a file": Case(redirect("file:///etc/passwd")),
    "a redirect of many kilobytes": Case(redirect("http://{else}/" + "a" * 20_000)),
    "a redirect of a manifest": Case(
        redirect("http://{else}/v2/library/alpine/manifests/3", path="/manifests/"),
        is_answered=True,
        question="manifest",
    ),
    "a redirect of a head": Case(
        redirect("http://{else}/v2/library/alpine/manifests/3", path="/manifests/"),
        is_answered=True,
        question="head",
    ),
    # Others.
    "a next page elsewhere": Case(linked, is_answered=True, question="referrers"),
    "cookies and other headers": Case(cookie, is_answered=True),
    "cookies and other headers with Basic": Case(cookie, is_answered=True, auth="basic"),
}


def elsewhere_says(place: Place, asked: Asked) -> Answer | None:
    match asked.path:
        case "/back":
            return Answer(302, {"Location": filled("http://{up}{blob}", place)})
        case "/wants":
            return error(401, "UNAUTHORIZED", {"WWW-Authenticate": 'Basic realm="a"'})
        case "/bearer":
            header = filled(f'Bearer realm="{ELSE}",service="a"', place)
            return error(401, "UNAUTHORIZED", {"WWW-Authenticate": header})
        case _:
            return None


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """Return the event loop that serves."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with scripted_upstream() as upstream, scripted_upstream() as elsewhere:
        for each in (upstream, elsewhere):
            each.add_image(NAME, "3", LAYER)
        made = Place(upstream, elsewhere)
        elsewhere.script = lambda asked: elsewhere_says(made, asked)
        yield made


@pytest.fixture
async def asked(place: Place) -> AsyncIterator[Asking]:
    for each in place:
        each.asked.clear()
        each.tokens.clear()
    place.upstream.username, place.upstream.secret = "user", CANARY
    with ask_of(place.upstream, others=(place.elsewhere.url,)) as asking:
        yield asking
    place.upstream.script = lambda _asked: None


async def ask(asked: Asking, question: str) -> None:
    remote, digest = asked.remote(NAME), Digest.parse(digest_of(LAYER))
    match question:
        case "head":
            await asked.client.head_manifest(remote, "3")
        case "manifest":
            await asked.client.get_manifest(remote, "3")
        case "referrers":
            await asked.client.get_referrers(remote, digest)
        case _:
            async with asked.client.open_blob(remote, digest) as blob:
                assert b"".join([chunk async for chunk in blob.chunks]) == LAYER


def check_elsewhere(place: Place) -> None:
    for request in place.elsewhere.asked:
        whole = f"{request.target} {request.headers} {request.body!r}"
        assert "authorization" not in request.headers
        assert "cookie" not in request.headers
        for spelling in SPELLINGS:
            assert spelling not in whole


@pytest.mark.parametrize("name", CASES)
async def test_the_canary_stays_where_it_belongs(
    place: Place, asked: Asking, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(variable, place.elsewhere.url)
    case = CASES[name]
    place.upstream.auth = case.auth
    place.upstream.script = lambda request: case.lie(place, request)
    failure: Exception | None = None
    try:
        await ask(asked, case.question)
    except (UpstreamFailed, NotUpstream) as error:
        failure = error
    assert (failure is None) == case.is_answered, failure
    check_elsewhere(place)
    assert all("cookie" not in request.headers for request in place.upstream.asked)
    for spelling in SPELLINGS:
        assert spelling not in f"{failure} {failure!r} {asked.remote()!r}"
    assert len(place.upstream.asked) + len(place.elsewhere.asked) < 12


async def test_the_canary_does_reach_its_own_realm(place: Place, asked: Asking) -> None:
    """So the cases above look for what is really sent."""
    place.upstream.auth = "bearer"
    await ask(asked, "blob")
    (request,) = place.upstream.asked_for("GET", "/token")
    assert request.headers["authorization"] == f"Basic {SPELLINGS[1]}"
    assert request.query("scope") == f"repository:{NAME}:pull"


async def test_a_token_is_asked_for_the_repository_that_is_wanted(
    place: Place, asked: Asking
) -> None:
    """Whatever scope the challenge names; and a service cannot smuggle in another one."""
    place.upstream.auth = "bearer"
    header = (
        f'Bearer realm="{place.upstream.url}/token?account=a",service="a&scope=b",'
        'scope="repository:private/secret:pull,push,delete"'
    )

    def lie(request: Asked) -> Answer | None:
        is_refused = place.upstream.truth(request).status == 401
        return error(401, "NO", {"WWW-Authenticate": header}) if is_refused else None

    place.upstream.script = lie
    await ask(asked, "blob")
    (request,) = place.upstream.asked_for("GET", "/token")
    assert request.target.count("scope=") == 1
    assert request.query("scope") == f"repository:{NAME}:pull"
    assert request.query("service") == "a&scope=b"
    assert request.query("account") == "a"

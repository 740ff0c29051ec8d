"""Families at hosts of their own, on a server in service: each name serves what is its alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.databases import planted
from tests.entrepot import ADMIN, Home, initialized
from tests.integration.served_world import HOST, open_served
from tests.live import LiveRegistry, start_registry
from tests.tenants import claims_of

MAIN, PULL, AUTH, CONSOLE, QUEUE = (
    f"{word}.localhost" for word in ("cloud", "cr", "auth", "console", "queue")
)
OLD: Final = "old.localhost"
HOSTS: Final = f"pull={PULL},pull={OLD},auth={AUTH},console={CONSOLE},queue={QUEUE}"
PATHS: Final = {
    "/v2/": {PULL, OLD},
    "/v1/oauth/token": {AUTH},
    "/.well-known/oauth-authorization-server": {AUTH},
    "/console/sign-in": {CONSOLE},
    "/v1/queues": {QUEUE},
    "/v1/repositories": {MAIN},
    "/v1/keys": {MAIN},
    "/v1/regions": {MAIN, PULL, AUTH, CONSOLE, QUEUE, OLD},
    "/healthz": {MAIN, PULL, AUTH, CONSOLE, QUEUE, OLD},
    "/readyz": {MAIN, PULL, AUTH, CONSOLE, QUEUE, OLD},
    "/v1/reference": {MAIN, PULL, AUTH, CONSOLE, QUEUE, OLD},
    "/v1/nothing": set(),
}
"""The names that serve a path."""
ALL: Final = PATHS["/healthz"]


@dataclass
class Site:
    """A server under several names, and who signs in to it."""

    registry: LiveRegistry
    key: tuple[str, str]
    password: str
    """The first one of the person, which is for one use."""

    def ask(self, host: str, path: str, method: str = "GET", **more: Any) -> httpx.Response:  # noqa: ANN401
        headers = {"Host": host, **more.pop("headers", {})}
        return httpx.request(method, self.registry.url + path, headers=headers, timeout=30, **more)

    def token(self) -> str:
        form = {"grant_type": "client_credentials"}
        answer = self.ask(AUTH, "/v1/oauth/token", "POST", data=form, auth=self.key)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["access_token"])

    def call(self, host: str, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401
        answer = self.ask(
            host, path, method, json=body, headers={"Authorization": f"Bearer {self.token()}"}
        )
        assert answer.is_success, answer.text
        return answer.json()


@contextmanager
def serving(data: Path, **settings: str) -> Iterator[Site]:
    shown = initialized(planted(data))
    labels = ("access key id", "secret access key", "one-time password")
    key_id, secret, password = (re.findall(rf"{label} +(\S+)", shown)[0] for label in labels)
    env = {f"ENTREPOT_{name.upper()}": value for name, value in settings.items()}
    registry = start_registry(data, command="serve", env=env)
    try:
        yield Site(registry, (key_id, secret), password)
    finally:
        assert registry.stop() == 0, registry.log


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    data = tmp_path_factory.mktemp("named") / "data"
    with serving(data, public_url=f"http://{MAIN}", family_hosts=HOSTS) as made:
        yield made


def test_operators_are_told_the_console_by_its_name(site: Site) -> None:
    assert f"(console: http://{CONSOLE}/console, " in site.registry.log


@pytest.mark.parametrize("path", PATHS)
def test_a_name_serves_what_is_its_own(site: Site, path: str) -> None:
    found = {host for host in ALL if site.ask(host, path).status_code != 404}
    assert found == PATHS[path]


@pytest.mark.parametrize("path", ["/v2/", "/v1/oauth/token", "/console", "/", "/v1/repositories/x"])
def test_what_another_name_serves_is_an_unknown_path(site: Site, path: str) -> None:
    refused, unknown = site.ask(QUEUE, path), site.ask(QUEUE, "/v1/unknown")
    assert refused.status_code == unknown.status_code == 404
    hidden = {"request_id": None}
    assert refused.json()["error"] | hidden == unknown.json()["error"] | hidden
    assert refused.json()["error"]["code"] == "NOT_FOUND"
    for method in ("POST", "DELETE", "OPTIONS"):
        assert site.ask(QUEUE, path, method).status_code == 404


@pytest.mark.parametrize("path", ["/%761/repositories", "/v1%2Frepositories", "/%63onsole/sign-in"])
def test_no_spelling_of_a_path_leads_to_what_another_name_serves(site: Site, path: str) -> None:
    assert site.ask(QUEUE, path).status_code == 404
    own = site.ask(QUEUE, "/%761/queues")
    assert own.status_code == site.ask(QUEUE, "/v1/queues").status_code == 401


@pytest.mark.parametrize("host", [PULL.upper(), f"{PULL}:80", f"{PULL}:5000"])
def test_a_name_is_known_in_any_case_and_with_any_port(site: Site, host: str) -> None:
    assert site.ask(host, "/v2/").status_code == 401
    assert site.ask(host, "/v1/queues").status_code == 404


@pytest.mark.parametrize("host", ["127.0.0.1:5000", "probe.internal", "[::1]", f"sub.{PULL}"])
def test_any_other_host_has_all(site: Site, host: str) -> None:
    for path in ("/healthz", "/v2/", "/v1/queues", "/console", "/v1/repositories"):
        assert site.ask(host, path).status_code != 404


@pytest.mark.parametrize("host", [PULL, OLD, "probe.internal"])
def test_challenges_tokens_and_references_name_the_host_of_pulls(site: Site, host: str) -> None:
    challenge = site.ask(host, "/v2/").headers["www-authenticate"]
    assert challenge == f'Bearer realm="http://{PULL}/v2/token",service="{PULL}"'
    login = site.call(MAIN, "POST", "/v1/authorization-token")
    assert (login["registry"], login["proxy_endpoint"]) == (PULL, f"http://{PULL}")
    pair = ("token", login["password"])
    bearer = site.ask(host, "/v2/token", params={"service": PULL}, auth=pair).json()["token"]
    assert claims_of(bearer)["aud"] == PULL
    headers = {"Authorization": f"Bearer {bearer}"}
    assert site.ask(host, "/v2/", headers=headers).status_code == 200
    name = f"web-{host.partition('.')[0]}"
    made = site.call(MAIN, "POST", "/v1/repositories", {"name": name})["repository"]
    assert made["uri"] == f"{PULL}/acme/{name}"


@pytest.mark.parametrize("host", [MAIN, PULL, CONSOLE])
def test_an_image_reference_leads_from_any_name_to_its_page(site: Site, host: str) -> None:
    html = {"Accept": "text/html"}
    for path, page in (("/", "/console"), ("/acme/web:1.4", "/console/acme/web:1.4")):
        answer = site.ask(host, path, headers=html)
        assert answer.status_code == 303
        assert answer.headers["location"] == f"http://{CONSOLE}{page}"
    if host != CONSOLE:
        assert site.ask(host, "/console/sign-in", headers=html).status_code == 404


def test_programs_sign_in_at_a_name_of_its_own(site: Site) -> None:
    assert claims_of(site.token())["iss"] == f"http://{AUTH}"
    metadata = site.ask(AUTH, "/.well-known/oauth-authorization-server").json()
    assert metadata["issuer"] == f"http://{AUTH}"
    urls = [value for name, value in metadata.items() if name.endswith(("_endpoint", "_uri"))]
    assert len(urls) == 4
    assert all(url.startswith(f"http://{AUTH}/") for url in urls)


def test_a_person_signs_in_to_the_console_by_another_name(site: Site) -> None:
    kept: dict[str, httpx.Cookies] = {AUTH: httpx.Cookies(), CONSOLE: httpx.Cookies()}

    def follow(url: str, method: str = "GET", **more: Any) -> httpx.Response:  # noqa: ANN401
        host, _, path = url.removeprefix("http://").partition("/")
        headers = {"Host": host, **more.pop("headers", {})}
        with httpx.Client(
            base_url=site.registry.url, headers=headers, cookies=kept[host], timeout=30
        ) as browser:
            answer = browser.request(method, f"/{path}", **more)
            kept[host] = browser.cookies
        return answer

    begun = follow(f"http://{CONSOLE}/console/sign-in")
    page = begun.headers["location"]
    assert page.startswith(f"http://{AUTH}/v1/oauth/authorize?")
    query = parse_qs(urlsplit(page).query)
    assert query["redirect_uri"] == [f"http://{CONSOLE}/console/signed-in"]
    shown = follow(page)
    # Browsers apply it to the redirect after the form.
    assert f"form-action 'self' http://{CONSOLE};" in shown.headers["content-security-policy"]
    form = {"form": field_of(shown.text, "form"), "email": ADMIN, "password": site.password}
    new = follow(page.partition("?")[0], "POST", data=form)
    chosen = "correct horse battery staple"
    form = {
        "form": field_of(new.text, "form"),
        "new_password": chosen,
        "repeated_password": chosen,
    }
    signed_in = follow(page.partition("?")[0], "POST", data=form)
    assert signed_in.status_code == 303, signed_in.text
    assert signed_in.headers["location"].startswith(f"http://{CONSOLE}/console/signed-in?")
    finished = follow(signed_in.headers["location"])
    assert finished.status_code == 303, finished.text
    home = follow(f"http://{CONSOLE}/console/my-account")
    assert home.status_code == 200, home.text
    assert f"entrepot login http://{MAIN}" in home.text
    csrf = field_of(home.text, "csrf")
    for origin, status in ((AUTH, 403), (MAIN, 403), (CONSOLE, 303)):
        headers = {"Origin": f"http://{origin}"}
        answer = follow(
            f"http://{CONSOLE}/console/sign-out", "POST", data={"csrf": csrf}, headers=headers
        )
        assert answer.status_code == status, answer.text


def test_regions_name_what_has_a_host_of_its_own(site: Site) -> None:
    for host in ALL:
        (region,) = site.ask(host, "/v1/regions").json()["regions"]
        assert region["endpoints"] == {
            "api": f"http://{MAIN}",
            "auth": f"http://{AUTH}",
            "console": f"http://{CONSOLE}",
            "pull": f"http://{PULL}",
            "queue": f"http://{QUEUE}",
            "registry": f"http://{MAIN}",
        }


@pytest.mark.parametrize("name", [MAIN, AUTH, PULL])
def test_the_command_finds_each_family_from_any_name(site: Site, home: Home, name: str) -> None:
    key_id, secret = site.key
    ended = home.run("login", f"http://{name}", "--access-key-id", key_id, stdin=f"{secret}\n")
    assert ended.returncode == 0, ended.stderr
    (stored,) = home.stored().values()
    assert stored["own_urls"]["queue"] == f"http://{QUEUE}"
    word = name.partition(".")[0]
    for nouns in ("queues", "repositories"):
        made = home.run(nouns, "create", word)
        assert made.returncode == 0, made.stderr
    reference = f"{PULL}/acme/{word}"
    assert home.run("repositories", "show", reference).returncode == 0
    shown = home.run("docker-login", "--print", "--output", "json")
    assert json.loads(shown.stdout)["registry"] == PULL
    absent = home.run("queues", "show", "absent")
    assert (absent.returncode, absent.stdout) == (3, ""), absent.stderr
    assert home.run("logout").returncode == 0


@pytest.mark.parametrize("name", [MAIN, PULL, QUEUE])
def test_a_program_without_a_sign_in_finds_them_too(site: Site, home: Home, name: str) -> None:
    key = {
        "ENTREPOT_REGISTRY": f"http://{name}",
        "ENTREPOT_ACCESS_KEY_ID": site.key[0],
        "ENTREPOT_SECRET_ACCESS_KEY": site.key[1],
    }
    made = Home(home.folder, {**home.environment, **key}).run(
        "queues", "create", name.replace(".", "-")
    )
    assert made.returncode == 0, made.stderr
    assert not home.credentials.exists()


async def test_links_for_those_who_do_not_sign_in_name_the_host_of_their_family(
    tmp_path: Path,
) -> None:
    named = {"notifications": "notes.test", "certificate": "pki.test"}
    hosts = ",".join(f"{part}={each},{part}={HOST}" for part, each in named.items())
    async with open_served(tmp_path / "data", family_hosts=hosts) as served:
        assert served.notifications.url == "http://notes.test"
        assert served.certificates.settings is not None
        assert served.certificates.settings.url == "http://pki.test"


@pytest.fixture
def home(site: Site, tmp_path: Path) -> Home:
    """Return a machine that reaches every name at the server, which takes requests of proxies."""
    return Home(tmp_path / "home", {"http_proxy": site.registry.url})


def field_of(page: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    assert found is not None, page
    return unescape(found[1])

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

from cloudcore.certificate.family import CERTIFICATE
from cloudcore.keyring import create_root_key
from cloudcore.notifications.family import NOTIFICATIONS
from registry.composition.main import Registry
from registry.composition.serve import SERVE
from registry.settings.settings import Settings
from tests.databases import planted
from tests.entrepot import ADMIN, Home, initialized
from tests.live import LiveRegistry, start_registry
from tests.tenants import HOST, claims_of

MAIN, PULL, AUTH, CONSOLE, QUEUE = (
    f"{word}.localhost" for word in ("cloud", "cr", "auth", "console", "queue")
)
OLD: Final = "old.localhost"
HOSTS: Final = f"pull={PULL},pull={OLD},auth={AUTH},console={CONSOLE},queue={QUEUE}"
ALL: Final = {MAIN, PULL, AUTH, CONSOLE, QUEUE, OLD}
PATHS: Final = {
    "/v2/": {PULL, OLD},
    "/v1/oauth/token": {AUTH},
    "/.well-known/oauth-authorization-server": {AUTH},
    "/console/sign-in": {CONSOLE},
    "/v1/queues": {QUEUE},
    "/v1/repositories": {MAIN},
    "/v1/keys": {MAIN},
    **dict.fromkeys(("/v1/regions", "/healthz", "/readyz", "/v1/reference"), ALL),
    "/v1/nothing": set(),
}
"""The names that serve a path."""


@dataclass
class Site:
    """A server under several names, and who signs in to it."""

    registry: LiveRegistry
    key: tuple[str, str]
    password: str
    """The first one of the person, which is for one use."""

    def ask(self, host: str, path: str, method: str = "GET", **more: Any) -> httpx.Response:  # noqa: ANN401
        headers = {"Host": host, **more.pop("headers", {})}
        # Who does not verify loads no certificates, which takes longer than the request.
        return httpx.request(
            method, self.registry.url + path, headers=headers, timeout=30, verify=False, **more
        )

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


def test_a_name_serves_what_is_its_own(site: Site) -> None:
    """In any case and with any port; any other name serves all."""
    for path, hosts in PATHS.items():
        assert {host for host in ALL if site.ask(host, path).status_code != 404} == hosts, path
    for host in (PULL.upper(), f"{PULL}:80", f"{PULL}:5000"):
        assert site.ask(host, "/v2/").status_code == 401, host
        assert site.ask(host, "/v1/queues").status_code == 404, host
    for host in ("127.0.0.1:5000", "probe.internal", "[::1]", f"sub.{PULL}"):
        for path in ("/healthz", "/v2/", "/v1/queues", "/console", "/v1/repositories"):
            assert site.ask(host, path).status_code != 404, (host, path)


def test_what_another_name_serves_is_an_unknown_path_however_it_is_spelled(site: Site) -> None:
    hidden = {"request_id": None}
    unknown = site.ask(QUEUE, "/v1/unknown")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "NOT_FOUND")
    for path in ("/v2/", "/v1/oauth/token", "/console", "/", "/v1/repositories/x"):
        refused = site.ask(QUEUE, path)
        assert refused.status_code == 404, path
        assert refused.json()["error"] | hidden == unknown.json()["error"] | hidden
        for method in ("POST", "DELETE", "OPTIONS"):
            assert site.ask(QUEUE, path, method).status_code == 404, (method, path)
    for path in ("/%761/repositories", "/v1%2Frepositories", "/%63onsole/sign-in"):
        assert site.ask(QUEUE, path).status_code == 404, path
    for own in ("/%761/queues", "/v1/queues"):
        assert site.ask(QUEUE, own).status_code == 401


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


def test_an_image_reference_leads_from_any_name_to_its_page(site: Site) -> None:
    html = {"Accept": "text/html"}
    for host in (MAIN, PULL, CONSOLE):
        for path, page in (("/", "/console"), ("/acme/web:1.4", "/console/acme/web:1.4")):
            answer = site.ask(host, path, headers=html)
            assert answer.status_code == 303
            assert answer.headers["location"] == f"http://{CONSOLE}{page}"
        is_here = site.ask(host, "/console/sign-in", headers=html).status_code != 404
        assert is_here == (host == CONSOLE)


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
    chosen = dict.fromkeys(("new_password", "repeated_password"), "correct horse battery staple")
    form = {"form": field_of(new.text, "form"), **chosen}
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
        sent: Any = {"data": {"csrf": csrf}, "headers": {"Origin": f"http://{origin}"}}
        answer = follow(f"http://{CONSOLE}/console/sign-out", "POST", **sent)
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
    assert home.run("repositories", "show", f"{PULL}/acme/{word}").returncode == 0
    shown = home.run("docker-login", "--print", "--output", "json")
    assert json.loads(shown.stdout)["registry"] == PULL
    if name == MAIN:
        absent = home.run("queues", "show", "absent")
        assert (absent.returncode, absent.stdout) == (3, ""), absent.stderr
    assert home.run("logout").returncode == 0


def test_a_program_without_a_sign_in_finds_them_too(site: Site, home: Home) -> None:
    for name in (MAIN, PULL, QUEUE):
        key = {
            "ENTREPOT_REGISTRY": f"http://{name}",
            "ENTREPOT_ACCESS_KEY_ID": site.key[0],
            "ENTREPOT_SECRET_ACCESS_KEY": site.key[1],
        }
        program = Home(home.folder, {**home.environment, **key})
        made = program.run("queues", "create", name.replace(".", "-"))
        assert made.returncode == 0, made.stderr
    assert not home.credentials.exists()


async def test_links_for_those_who_do_not_sign_in_name_the_host_of_their_family(
    tmp_path: Path,
) -> None:
    named = {"notifications": "notes.test", "certificate": "pki.test"}
    hosts = ",".join(f"{part}={each},{part}={HOST}" for part, each in named.items())
    url, data = f"http://{HOST}", planted(tmp_path / "data")
    settings = Settings(
        data=data, public_url=url, family_hosts=hosts, certificate_grants="a.test=*"
    )
    create_root_key(settings.root_key)
    async with Registry(settings, SERVE).open_planes() as (opening, _):
        assert (await opening.needs_of(NOTIFICATIONS)).url == "http://notes.test"
        issuing = (await opening.needs_of(CERTIFICATE)).settings
        assert issuing is not None
        assert issuing.url == "http://pki.test"


@pytest.fixture
def home(site: Site, tmp_path: Path) -> Home:
    """Return a machine that reaches every name at the server, which takes requests of proxies."""
    return Home(tmp_path / "home", {"http_proxy": site.registry.url})


def field_of(page: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    assert found is not None, page
    return unescape(found[1])

"""``entrepot login`` of a person: the redirect to this machine, pasted codes, and roles."""

from __future__ import annotations

import http.client
import io
import re
import select
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from cloudcore.command_failures import Misuse
from cloudcore.commands.prompts import is_sent_in_the_clear
from registry.cli.client.loopback_redirect import ADDRESSES, LoopbackRedirect
from registry.cli.client.person_sign_in import AssignedRole, pick
from tests.entrepot import (
    PASSWORD,
    AtTerminal,
    Home,
    Install,
    Waiting,
    fetch_code,
    installed,
    sign_in_on,
)

BROWSER = {"BROWSER": "true"}
"""A browser that opens nothing."""


@pytest.fixture(scope="module")
def install(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Install]:
    with installed(tmp_path_factory.mktemp("install") / "data") as made:
        waiting = Waiting(Home(tmp_path_factory.mktemp("first")), made.url)
        waiting.give(fetch_code(waiting.page, made.one_time_password, PASSWORD))
        yield made


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home", BROWSER)


@pytest.fixture
def redirect() -> Iterator[LoopbackRedirect]:
    with LoopbackRedirect() as listening:
        yield listening


def has_come(redirect: LoopbackRedirect, seconds: float = 0) -> bool:
    return bool(select.select([redirect], [], [], seconds)[0])


def test_only_the_redirect_with_the_right_state_counts_and_only_once(
    redirect: LoopbackRedirect,
) -> None:
    base, state = redirect.uri.removesuffix("/callback"), redirect.state
    for target, status in (
        ("/", 404),
        ("/favicon.ico", 404),
        (f"/elsewhere?code=x&state={state}", 404),
        ("/callback", 400),
        ("/callback?code=x", 400),
        ("/callback?code=x&state=wrong", 400),
        (f"/callback?state={state}", 400),
        (f"/callback?code=x&code=y&state={state}", 400),
        ("/callback?code=x&state=%C3%A9", 400),
        ("//[?code=x", 404),
    ):
        assert httpx.get(base + target).status_code == status, target
        assert not has_come(redirect)
    page = httpx.get(f"{redirect.uri}?code=eac_1&state={state}")
    assert page.status_code == 200
    assert "You can close this window" in page.text
    assert "eac_1" not in page.text
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["referrer-policy"] == "no-referrer"
    assert has_come(redirect, 30)
    assert redirect.code == "eac_1"
    assert httpx.get(f"{redirect.uri}?code=eac_2&state={state}").status_code == 400
    assert redirect.code == "eac_1"


def has_ipv6() -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return False
    return True


def test_a_machine_without_ipv4_listens_on_ipv6() -> None:
    not_here = (socket.AF_INET, "203.0.113.1")
    with pytest.raises(OSError, match="assign"):
        LoopbackRedirect((not_here,))
    if not has_ipv6():
        pytest.skip("this machine has no ::1")
    with LoopbackRedirect((not_here, *ADDRESSES[1:])) as redirect:
        assert redirect.uri.startswith("http://[::1]:")
        answer = httpx.get(f"{redirect.uri}?code=eac_1&state={redirect.state}", timeout=60)
        assert (answer.status_code, redirect.code) == (200, "eac_1")


def test_a_connection_that_says_nothing_holds_nobody_up(redirect: LoopbackRedirect) -> None:
    """Browsers open connections in advance."""
    parts = urlsplit(redirect.uri)
    assert parts.hostname is not None
    silent = http.client.HTTPConnection(parts.hostname, parts.port)
    silent.connect()
    try:
        answer = httpx.get(f"{redirect.uri}?code=eac_1&state={redirect.state}", timeout=60)
        assert answer.status_code == 200
    finally:
        silent.close()


def test_a_browser_here_brings_the_code_back(install: Install, home: Home) -> None:
    waiting = Waiting(home, install.url)
    (asked,) = parse_qs(urlsplit(waiting.page).query)["redirect_uri"]
    done = sign_in_on(waiting.page, PASSWORD)
    assert done.status_code == 303
    location = done.headers["location"]
    assert location.startswith(f"{asked}?code=")
    assert httpx.get(location, timeout=60).status_code == 200
    ended = waiting.wait()
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.endswith("Commands act in the role admin of acme.\n")
    assert httpx.URL(location).params["code"] not in ended.stdout + ended.stderr
    assert home.run("repositories", "list").returncode == 0


def test_a_browser_elsewhere_shows_a_code_to_paste(install: Install, home: Home) -> None:
    waiting = Waiting(home, install.url, "--no-role")
    ended = waiting.give(fetch_code(waiting.next_page(), PASSWORD))
    assert ended.returncode == 0, ended.stderr
    # The address of a redirect that did not arrive is as good.
    waiting = Waiting(home, install.url, "--no-role")
    ended = waiting.give(sign_in_on(waiting.page, PASSWORD).headers["location"])
    assert ended.returncode == 0, ended.stderr


def test_no_browser_is_opened_on_request(install: Install, home: Home, tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f"#!/bin/sh\ntouch {tmp_path}/opened\n")
    browser.chmod(0o755)
    waiting = Waiting(Home(home.folder, {"BROWSER": str(browser)}), install.url, "--no-browser")
    assert parse_qs(urlsplit(waiting.page).query)["redirect_uri"] == ["urn:ietf:wg:oauth:2.0:oob"]
    ended = waiting.give("")
    assert (ended.returncode, ended.stderr) == (
        2,
        "entrepot: no code was given; type it, or pipe it to the standard input\n",
    )
    assert not (tmp_path / "opened").exists()


Answer = str | Callable[[str], str]
"""What is typed, or a function of what the command has shown that returns it."""


def typed_at(home: Home, dialogue: list[tuple[str, Answer]], *arguments: str) -> tuple[int, str]:
    """Run a command at a terminal, and type each answer after its prompt; return what it showed."""
    with AtTerminal(home, *arguments, shows_output=True) as person:
        for prompt, answer in dialogue:
            person.see(prompt.encode())
            typed = answer if isinstance(answer, str) else answer(person.shown.decode())
            person.type(typed, after=prompt.encode())
        return person.ended()[0], person.shown.decode()


def test_a_code_typed_while_a_browser_is_open_is_not_shown(install: Install, home: Home) -> None:
    status, shown = typed_at(home, [("Code: ", "eac_wrong")], "login", install.url)
    assert status == 1
    assert "invalid_grant" in shown
    assert "eac_wrong" not in shown


def code_of_the_page(shown: str) -> str:
    """Sign in on the page that a command has shown, and return its code."""
    (page,) = re.findall(r"http://\S+/authorize\?\S+", shown)
    return fetch_code(page, PASSWORD)


def listed_at(shown: str) -> int:
    """Return the number of the role ``admin`` among those that were listed."""
    return re.findall(r" --role (\S+)", shown).index("admin") + 1


@pytest.mark.parametrize("typed", ["", "0", "3", "²", "admin"])
def test_a_role_that_is_not_in_the_list_is_not_taken(
    typed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{typed}\n"))
    roles = [AssignedRole(name, "acme", f"crn:iam::a:role/{name}") for name in ("admin", "ci")]
    with pytest.raises(Misuse, match="you are signed in without a role"):
        pick(roles)


def test_several_roles_are_listed_and_one_that_refuses_is_explained(
    install: Install, tmp_path: Path
) -> None:
    home = Home(tmp_path)
    with httpx.Client(base_url=install.url, timeout=60) as http:
        pair = (install.access_key_id, install.secret)
        token = http.post(
            "/v1/oauth/token", data={"grant_type": "client_credentials"}, auth=pair
        ).json()["access_token"]
        http.headers["Authorization"] = f"Bearer {token}"
        (user,) = http.get("/v1/users").json()["users"]
        trust = {
            "version": "1",
            "statements": [{"effect": "deny", "principals": [user["crn"]]}],
        }
        open_to = {"effect": "allow", "principals": [user["crn"]]}
        made = {
            "closed": trust,
            "open": {"version": "1", "statements": [open_to]},
        }
        roles = []
        for name, document in made.items():
            answer = http.post("/v1/roles", json={"name": name, "trust_policy": document})
            roles.append(answer.raise_for_status().json()["role"]["id"])
            assign = {"user": user["id"]}
            http.post(f"/v1/roles/{roles[-1]}/assignments", json=assign).raise_for_status()
        try:
            listed = install.sign_in_by_page(home)
            assert listed.returncode == 0, listed.stderr
            for name in ("admin", "open"):
                assert f"\n  entrepot login {install.url} --role {name}\n" in listed.stdout
            assert "--role closed" not in listed.stdout  # it lets nobody in
            assert "role" not in home.stored()[install.url]
            number = str(listed_at(listed.stdout))
            picked: list[tuple[str, Answer]] = [("Code: ", code_of_the_page), ("[1-2] ", number)]
            status, shown = typed_at(home, picked, "login", install.url)
            assert (status, "Commands act in the role admin of acme." in shown) == (0, True)
            assert home.stored()[install.url]["role"].endswith(":role/admin")
            refused = install.sign_in_by_page(home, "--role", "closed")
            assert refused.returncode == 1
            assert "its trust policy denies it" in refused.stderr
            assert "You are signed in, but not in the role closed: " in refused.stderr
            assert "role" not in home.stored()[install.url]
        finally:
            for role_id in roles:
                http.delete(f"/v1/roles/{role_id}").raise_for_status()


@pytest.mark.parametrize(
    ("url", "is_readable"),
    [
        ("https://registry.example.com", False),
        ("http://localhost:5000", False),
        ("http://registry.localhost", False),
        ("http://127.0.0.1:5000", False),
        ("http://127.1.2.3", False),
        ("http://[::1]:5000", False),
        ("http://registry.example.com", True),
        ("http://10.0.0.1:5000", True),
        ("http://localhost.example.com", True),
        ("http://[2001:db8::1]", True),
    ],
)
def test_plain_http_is_readable_on_the_way_to_another_machine(url: str, is_readable: bool) -> None:
    assert is_sent_in_the_clear(url) is is_readable


def test_a_secret_goes_over_plain_http_only_on_request(home: Home) -> None:
    login = ("login", "http://registry.invalid", "--access-key-id", "AKAKAKAKAKAKAKAKAKAK")
    refused = home.run(*login, stdin="secret\n")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("entrepot: http://registry.invalid is plain HTTP: ")
    assert "--insecure-http" in refused.stderr
    status, shown = typed_at(home, [("nevertheless? [y/N] ", "")], *login)
    assert (status, "nothing was sent" in shown) == (1, True)
    sent = home.run(*login, "--insecure-http", stdin="secret\n")
    assert sent.returncode == 1
    warning, failure = sent.stderr.splitlines()
    assert warning.startswith("entrepot: warning: http://registry.invalid is plain HTTP: ")
    assert failure.startswith("entrepot: cannot reach http://registry.invalid: ")

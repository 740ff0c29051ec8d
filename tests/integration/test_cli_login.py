"""``entrepot login`` and ``logout`` against a served registry, and commands that use them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.entrepot import (
    PASSWORD,
    AtTerminal,
    Home,
    Install,
    Waiting,
    fetch_code,
    installed,
    mode_of,
)
from tests.live import LiveRegistry

LIST = ("repositories", "list")


@pytest.fixture(scope="module")
def install(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Install]:
    with installed(tmp_path_factory.mktemp("install") / "data") as made:
        # The first sign-in of the admin replaces the one-time password.
        waiting = Waiting(Home(tmp_path_factory.mktemp("first")), made.url)
        waiting.give(fetch_code(waiting.page, made.one_time_password, PASSWORD))
        yield made


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def test_a_key_pair_signs_in_and_leaves_a_file_of_its_owners_alone(
    install: Install, home: Home
) -> None:
    ended = install.sign_in_by_key(home)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == (
        f"Signed in to {install.url}; the credential is in {home.credentials}.\n"
    )
    assert mode_of(home.credentials) == 0o600
    assert mode_of(home.credentials.parent) == 0o700
    assert list(home.credentials.parent.iterdir()) == [home.credentials]
    token = home.stored()[install.url]["token"]["access_token"]
    assert install.status(token) == 200
    assert install.secret not in home.credentials.read_text()
    assert install.secret not in ended.stdout + ended.stderr
    assert token not in ended.stdout + ended.stderr


def test_a_file_that_others_can_read_is_replaced_not_written_into(
    install: Install, home: Home
) -> None:
    home.credentials.parent.mkdir(parents=True)
    home.credentials.write_text("{}")
    home.credentials.chmod(0o644)
    with home.credentials.open() as before:
        install.sign_in_by_key(home)
        assert before.read() == "{}"
    assert mode_of(home.credentials) == 0o600


def test_a_wrong_secret_is_told_and_keeps_what_there_was(install: Install, home: Home) -> None:
    def attempt() -> subprocess.CompletedProcess[str]:
        pair = ("--access-key-id", install.access_key_id)
        return home.run("login", install.url, *pair, stdin="wrong\n")

    refused = attempt()
    assert (refused.returncode, refused.stdout) == (4, "")
    assert refused.stderr.startswith("entrepot: invalid_client: ")
    assert not home.credentials.exists()
    install.sign_in_by_key(home)
    before = home.credentials.read_bytes()
    assert attempt().returncode == 4
    assert home.credentials.read_bytes() == before


def test_no_secret_is_misuse(install: Install, home: Home) -> None:
    ended = home.run("login", install.url, "--access-key-id", install.access_key_id)
    assert ended.returncode == 2
    assert ended.stderr == (
        "entrepot: no secret access key was given; type it, or pipe it to the standard input\n"
    )


def test_a_typed_secret_is_not_shown(install: Install, home: Home) -> None:
    words = ("login", install.url, "--access-key-id", install.access_key_id)
    with AtTerminal(home, *words, shows_output=True) as person:
        person.type(install.secret, after=b"Secret access key: ")
        assert person.ended()[0] == 0
    assert b"Signed in" in person.shown
    assert install.secret.encode() not in person.shown


def test_a_person_signs_in_by_the_code_of_the_page(install: Install, home: Home) -> None:
    waiting = Waiting(home, install.url)
    asked = parse_qs(urlsplit(waiting.page).query)
    assert asked.keys() == {
        *("response_type", "client_id", "redirect_uri"),
        *("code_challenge", "code_challenge_method"),
    }
    code = fetch_code(waiting.page, PASSWORD)
    ended = waiting.give(code)
    assert ended.returncode == 0, ended.stderr
    kept = home.stored()[install.url]
    for secret in (code, kept["token"]["access_token"], kept["refresh_token"]):
        assert secret not in ended.stdout + ended.stderr
    # The person's only role is taken without being asked for.
    assert ended.stdout.endswith("Commands act in the role admin of acme.\n")
    assert kept["role"].endswith(":role/admin")
    assert home.run(*LIST).returncode == 0
    # The code was for one attempt: a second spoils what the first gave.
    again = Waiting(Home(home.folder / "again"), install.url).give(code)
    assert again.returncode == 1
    assert again.stderr.startswith("entrepot: invalid_grant: the code is wrong, used or expired")
    over = home.run(*LIST)
    assert over.returncode == 4
    assert over.stderr == (
        f"entrepot: the sign-in to {install.url} is over: run 'entrepot login {install.url}'\n"
    )


def test_a_wrong_code_leaves_no_file(install: Install, home: Home) -> None:
    for code, status, words in (
        ("eac_wrong", 1, "invalid_grant: the code is wrong"),
        ("", 2, "no code was given"),
    ):
        ended = Waiting(home, install.url).give(code)
        assert ended.returncode == status
        assert ended.stderr.startswith(f"entrepot: {words}")
        assert not home.credentials.exists()


def test_commands_act_in_the_role_and_renew_what_has_ended(install: Install, home: Home) -> None:
    ended = install.sign_in_by_page(home, "--role", "admin")
    assert ended.returncode == 0, ended.stderr
    first = home.stored()[install.url]

    def listed() -> dict[str, str]:
        ended = home.run(*LIST, "--output", "json")
        assert (ended.returncode, ended.stdout) == (0, "[]\n"), ended.stderr
        kept: dict[str, str] = home.stored()[install.url]
        return kept

    assert listed() == first
    home.expire(install.url, "role_token")
    second = listed()
    assert second["role_token"] != first["role_token"]
    assert second["refresh_token"] == first["refresh_token"]
    home.expire(install.url, "role_token", "token")
    third = listed()
    assert third["refresh_token"] != first["refresh_token"]
    assert mode_of(home.credentials) == 0o600


def test_commands_that_run_at_once_renew_once(install: Install, home: Home) -> None:
    """A refresh token that came twice would end the sign-in."""
    install.sign_in_by_page(home, "--role", "admin")
    home.expire(install.url, "role_token", "token")
    with ThreadPoolExecutor(3) as pool:
        ended = list(pool.map(lambda _: home.run(*LIST), range(3)))
    assert [each.returncode for each in ended] == [0, 0, 0], ended
    home.expire(install.url, "role_token", "token")
    assert home.run(*LIST).returncode == 0


def test_a_role_session_that_was_ended_elsewhere_is_assumed_again(
    install: Install, home: Home
) -> None:
    install.sign_in_by_page(home, "--role", "admin")
    token = home.stored()[install.url]["role_token"]["access_token"]
    httpx.post(f"{install.url}/v1/oauth/revoke", data={"token": token}).raise_for_status()
    assert install.status(token) == 401
    assert home.run(*LIST).returncode == 0


def test_a_role_that_is_none_leaves_the_person_signed_in(install: Install, home: Home) -> None:
    ended = install.sign_in_by_page(home, "--role", "nobody")
    assert ended.returncode == 3
    assert ended.stderr.startswith("entrepot: NOT_FOUND: ")
    assert "role" not in home.stored()[install.url]


def test_a_key_pair_whose_token_has_ended_signs_in_again(install: Install, home: Home) -> None:
    install.sign_in_by_key(home)
    home.expire(install.url, "token")
    ended = home.run(*LIST)
    assert ended.returncode == 4
    assert ended.stderr.endswith(f"is over: run 'entrepot login {install.url}'\n")


@pytest.mark.parametrize("is_person", [True, False])
def test_logout_ends_the_sign_in_and_forgets_it(
    is_person: bool, install: Install, home: Home
) -> None:
    sign_in = install.sign_in_by_page if is_person else install.sign_in_by_key
    assert sign_in(home, "--role", "admin").returncode == (0 if is_person else 1)
    kept = home.stored()[install.url]
    tokens = [kept[name]["access_token"] for name in ("token", "role_token") if name in kept]
    assert 401 not in [install.status(token) for token in tokens]
    ended = home.run("logout", install.url)
    assert (ended.returncode, ended.stdout) == (0, f"Signed out of {install.url}.\n")
    assert not home.credentials.exists()
    assert {install.status(token) for token in tokens} == {401}
    again = home.run("logout", install.url)
    assert (again.returncode, again.stdout) == (0, f"Not signed in to {install.url}.\n")
    assert home.run(*LIST).stderr == "entrepot: not signed in: run 'entrepot login URL'\n"


def test_a_new_sign_in_ends_the_one_it_replaces(install: Install, home: Home) -> None:
    install.sign_in_by_key(home)
    old = home.stored()[install.url]["token"]["access_token"]
    install.sign_in_by_key(home)
    assert install.status(old) == 401
    assert home.run(*LIST).returncode == 0


def test_logout_forgets_though_the_registry_is_gone(
    install: Install, home: Home, tmp_path: Path
) -> None:
    with installed(tmp_path / "data") as other:
        other.sign_in_by_key(home)
        install.sign_in_by_key(home)
        unclear = home.run(*LIST)
        assert unclear.returncode == 2
        for url in (install.url, other.url):
            assert url in unclear.stderr
            assert home.run(*LIST, "--registry", url).returncode == 0
        assert Home(home.folder, {"ENTREPOT_REGISTRY": other.url}).run(*LIST).returncode == 0
    ended = home.run("logout", other.url)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("entrepot: forgotten here, but not ended at the registry: ")
    assert f"cannot reach {other.url}: Connection refused" in ended.stderr
    assert list(home.stored()) == [install.url]
    assert home.run("logout").returncode == 0  # there is but one left
    assert not home.credentials.exists()


def test_a_container_client_gets_its_login_by_standard_input(
    install: Install, home: Home, tmp_path: Path
) -> None:
    client = tmp_path / "podman"
    client.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/said\ncat > {tmp_path}/read\nexit $END\n')
    client.chmod(0o755)
    failing = Home(home.folder, {"END": "7"})
    ended = install.sign_in_by_key(
        Home(home.folder, {"END": "0"}), "--docker", "--client", str(client)
    )
    assert ended.returncode == 0, ended.stderr
    host = install.url.removeprefix("http://")
    assert (tmp_path / "said").read_text() == (
        f"login --username token --password-stdin --tls-verify=false {host}\n"
    )
    password = (tmp_path / "read").read_text()
    assert password.startswith("rlc_")
    assert password not in ended.stdout + ended.stderr + home.credentials.read_text()
    answer = httpx.get(f"{install.url}/v2/token", auth=("token", password))
    assert answer.status_code == 200
    # A later one needs no secret.
    again = Home(home.folder, {"END": "0"}).run("docker-login", "--client", str(client))
    assert (again.returncode, again.stderr) == (0, "")
    assert (tmp_path / "read").read_text() not in ("", password)
    ended = install.sign_in_by_key(failing, "--docker", "--client", str(client))
    assert ended.returncode == 1
    assert f"entrepot: {client} did not sign in" in ended.stderr
    ended = install.sign_in_by_key(home, "--docker", "--client", "no-such-client")
    assert ended.returncode == 1
    assert "cannot run no-such-client" in ended.stderr


def test_where_there_is_no_sign_in_nobody_is_sent_to_its_page(
    home: Home, live_registry: LiveRegistry
) -> None:
    url = live_registry.url
    for way in ((), ("--access-key-id", "AKAKAKAKAKAKAKAKAKAK")):
        ended = home.run("login", url, *way, stdin="x\n")
        assert (ended.returncode, ended.stdout) == (3, "")
        assert ended.stderr.startswith(f"entrepot: there is no sign-in at {url}; check the")
        assert "'entrepot dev' has none" in ended.stderr


def test_a_person_may_stay_without_a_role_and_is_told_what_that_means(
    install: Install, home: Home
) -> None:
    ended = install.sign_in_by_page(home, "--no-role")
    assert ended.returncode == 0, ended.stderr
    assert "role" not in home.stored()[install.url]
    refused = home.run(*LIST)
    assert refused.returncode == 1
    assert refused.stderr.startswith("entrepot: ACCESS_DENIED: ")
    advice = f"; a person acts in an account by a role: run 'entrepot login {install.url} --role"
    assert advice in refused.stderr
    nothing = home.run("login", install.url, "--docker", "--no-role")
    assert (nothing.returncode, nothing.stdout) == (2, "")
    assert nothing.stderr == (
        "entrepot: a person signs a container client in by a role: leave --no-role out\n"
    )


def test_a_login_can_be_interrupted(install: Install, home: Home) -> None:
    ended = Waiting(home, install.url).interrupt()
    assert (ended.returncode, ended.stderr) == (130, "\n")
    assert not home.credentials.exists()


def test_a_file_that_is_something_else_is_told(install: Install, home: Home) -> None:
    home.credentials.parent.mkdir(parents=True)
    home.credentials.write_text("not ours")
    for arguments in (LIST, ("logout", install.url)):
        ended = home.run(*arguments)
        assert ended.returncode == 1
        assert ended.stderr == (
            f"entrepot: {home.credentials} does not hold what 'entrepot login' writes; "
            "remove it and sign in again\n"
        )
    assert home.credentials.read_text() == "not ours"

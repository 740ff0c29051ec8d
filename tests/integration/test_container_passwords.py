"""Passwords for container clients: the credential helper, and the kubelet's plugin."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import jsonschema  # type: ignore[import-untyped]
import pytest

from registry.cli import credential_helper, credential_provider
from registry.cli.client.credentials import credentials_path
from tests.databases import ROOT
from tests.entrepot import Home, mode_of
from tests.integration.cli_world import World, cli_world

NOT_FOUND: Final = "credentials not found in native keychain\n"
API: Final = "credentialprovider.kubelet.k8s.io/v1"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with cli_world(tmp_path_factory.mktemp("world")) as made:
        yield made


@pytest.fixture
def home(world: World, tmp_path: Path) -> Home:
    """Return a machine that is signed in."""
    made = Home(tmp_path / "home", {"HOME": str(tmp_path)})
    world.sign_in(made, {"effect": "allow", "actions": ["*"], "resources": ["*"]})
    return made


@pytest.fixture
def keyed(world: World, tmp_path: Path) -> Home:
    """Return a machine that has an access key in its environment, and nothing else."""
    key = {
        "HOME": str(tmp_path),
        "ENTREPOT_REGISTRY": world.install.url,
        "ENTREPOT_ACCESS_KEY_ID": world.install.access_key_id,
        "ENTREPOT_SECRET_ACCESS_KEY": world.install.secret,
    }
    return Home(tmp_path / "keyed", key)


class Ended(NamedTuple):
    status: int
    out: str
    err: str


def run(main: Callable[[], int], home: Home, *arguments: str, stdin: str | bytes = "") -> Ended:
    """Run a program in this process."""
    out, err = io.StringIO(), io.StringIO()
    sent = stdin.encode() if isinstance(stdin, str) else stdin
    given = io.TextIOWrapper(io.BytesIO(sent), encoding="utf-8")
    with (
        patch.dict("os.environ", home.environ, clear=True),
        patch.object(sys, "argv", ["program", *arguments]),
        patch.object(sys, "stdin", given),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        status = main()
    return Ended(status, out.getvalue(), err.getvalue())


def helper(home: Home, *arguments: str, stdin: str | bytes = "") -> Ended:
    return run(credential_helper.main, home, *arguments, stdin=stdin)


def given(home: Home, host: str) -> str:
    """Return the password that the helper gives for a host."""
    ended = helper(home, "get", stdin=f"{host}\n")
    assert (ended.status, ended.err) == (0, ""), ended.out
    answer = json.loads(ended.out)
    assert answer == {"ServerURL": host, "Username": "token", "Secret": answer["Secret"]}
    return str(answer["Secret"])


def kept(home: Home) -> Path:
    return home.credentials.with_name("container-passwords.json")


def all_text(folder: Path) -> str:
    return "".join(each.read_text() for each in folder.rglob("*") if each.is_file())


def test_the_helper_gives_one_password_until_it_is_old(world: World, home: Home) -> None:
    first = given(home, world.host)
    assert world.admits(first)
    assert mode_of(kept(home)) == 0o600
    for host in (world.host, f"http://{world.host}", f"http://{world.host}/v2/"):
        assert given(home, host) == first
    # A quarter before its end it is too old to begin a push with.
    stored = home.stored()
    stored[world.install.url]["signed_in_at"] = 0
    home.credentials.write_text(json.dumps(stored))
    (entry,) = (document := json.loads(kept(home).read_bytes())).values()
    entry["issued_at"] -= 8 * 3600
    entry["expires_at"] -= 8 * 3600
    kept(home).write_text(json.dumps(document))
    assert given(home, world.host) == first
    entry["issued_at"] -= 3600 + 1
    entry["expires_at"] -= 3600 + 1
    kept(home).write_text(json.dumps(document))
    assert given(home, world.host) != first


def test_a_password_goes_with_its_sign_in_and_when_it_is_erased(world: World, home: Home) -> None:
    first = given(home, world.host)
    assert helper(home, "erase", stdin=world.host) == (0, "", "")
    second = given(home, world.host)
    assert second != first
    world.sign_in(home, {"effect": "allow", "actions": ["*"], "resources": ["*"]})
    third = given(home, world.host)
    assert third != second
    assert world.admits(third)
    assert world.run("logout", home=home).status == 0
    assert not kept(home).exists()
    assert helper(home, "get", stdin=world.host) == (1, NOT_FOUND, "")
    assert helper(home, "erase", stdin=world.host) == (0, "", "")


def test_where_nothing_can_be_kept_each_password_is_new(world: World, home: Home) -> None:
    kept(home).mkdir()  # nothing can be read or written there
    assert given(home, world.host) != given(home, world.host)


def test_a_damaged_file_of_passwords_is_left_alone(world: World, home: Home) -> None:
    kept(home).write_text("something else")
    assert world.admits(given(home, world.host))
    assert kept(home).read_text() == "something else"


def keep(home: Home, url: str, password: str, registry: str) -> None:
    """Sign in to a registry that is not there, and keep a password for it."""
    home.credentials.parent.mkdir(parents=True, exist_ok=True)
    signed_in = home.stored() if home.credentials.exists() else {}
    token = {"access_token": "x", "expires_at": int(time.time()) + 3600}
    home.credentials.write_text(json.dumps({**signed_in, url: {"token": token}}))
    all_kept = json.loads(kept(home).read_bytes()) if kept(home).exists() else {}
    now = time.time()
    all_kept[url] = {
        "username": "token",
        "password": password,
        "registry": registry,
        "issued_at": now,
        "expires_at": now + 3600,
    }
    kept(home).write_text(json.dumps(all_kept))


@pytest.mark.parametrize(
    ("asked", "password"),
    [
        ("r.example.com", "https"),
        ("R.example.com:443", "https"),
        ("r.example.com:80", "http"),
        ("r.example.com:5000", "port"),
        ("https://r.example.com", "https"),
        ("http://r.example.com/v2/", "http"),
        ("http://r.example.com:5000", "port"),
        ("https://r.example.com:5000", "port"),  # a client may put any scheme before it
        ("other.example.com", "alias"),
        ("only-known.example.com", "liar"),
    ],
)
def test_of_several_sign_ins_the_nearest_gives_the_password(
    tmp_path: Path, asked: str, password: str
) -> None:
    """In the file, each comes after one that fits less."""
    home = Home(tmp_path / "home", {"HOME": str(tmp_path)})
    keep(home, "http://127.0.0.1:5000", "liar", "only-known.example.com")
    keep(home, "http://127.0.0.1:5001", "alias-of-r", "r.example.com")
    keep(home, "http://r.example.com", "http", "r.example.com")
    keep(home, "https://r.example.com", "https", "r.example.com")
    keep(home, "http://r.example.com:5000", "port", "other.example.com")
    keep(home, "https://other.example.com", "alias", "other.example.com")
    assert given(home, asked) == password


@pytest.mark.parametrize("asked", ["r.example.com:444", "https://", "example.com", "http://[r"])
def test_a_password_goes_to_no_host_that_only_looks_alike(tmp_path: Path, asked: str) -> None:
    home = Home(tmp_path / "home", {"HOME": str(tmp_path)})
    keep(home, "https://r.example.com", "https", "r.example.com")
    assert helper(home, "get", stdin=asked) == (1, NOT_FOUND, "")


@pytest.mark.parametrize(
    ("arguments", "stdin", "told"),
    [
        (("get",), "registry.example.com", NOT_FOUND),
        (("get",), "https://[::1", NOT_FOUND),
        (("get",), " \n", "no credentials server URL\n"),
        (("get",), b"\xff\xfe", NOT_FOUND),
        (("erase",), "", "no credentials server URL\n"),
        (("store",), "{", "the standard input is no JSON object with a ServerURL\n"),
        (("store",), "[]", "the standard input is no JSON object with a ServerURL\n"),
        (("store",), "{}", "no credentials server URL\n"),
        (("store",), '{"ServerURL": "HOST", "Secret": "x"}', "no credentials username\n"),
        (("take",), "", "docker-credential-entrepot: unknown action: take\n"),
        ((), "", "Usage: docker-credential-entrepot <store|get|erase|list|version>\n"),
        (("get", "x"), "", "Usage: docker-credential-entrepot <store|get|erase|list|version>\n"),
    ],
)
def test_what_cannot_be_is_told_as_clients_expect(
    world: World, arguments: tuple[str, ...], stdin: str | bytes, told: str
) -> None:
    if isinstance(stdin, str):
        stdin = stdin.replace("HOST", world.host)
    assert helper(world.home, *arguments, stdin=stdin) == (1, told, "")


def test_only_our_logins_are_stored_and_those_are_not_kept(world: World, home: Home) -> None:
    def store(username: str, host: str = world.host) -> Ended:
        login = {"ServerURL": host, "Username": username, "Secret": "rlc_secret"}
        return helper(home, "store", stdin=json.dumps(login))

    assert store("token") == (0, "", "")
    assert "rlc_secret" not in all_text(home.folder)
    for refused in (store("ann"), store("token", "registry.example.com")):
        assert refused.status == 1
        assert "makes its own passwords and stores none" in refused.out
        assert "rlc_secret" not in refused.out


def test_the_helper_lists_its_hosts_and_its_version(world: World) -> None:
    assert json.loads(helper(world.home, "list").out) == {world.host: "token"}
    version = helper(world.home, "version")
    assert version.status == 0
    assert version.out.startswith("docker-credential-entrepot (entrepot) ")


def test_a_sign_in_that_is_over_says_what_to_do(world: World, home: Home) -> None:
    home.expire(world.install.url, "token")
    ended = helper(home, "get", stdin=world.host)
    url = world.install.url
    assert ended == (1, f"the sign-in to {url} is over: run 'entrepot login {url}'\n", "")


@pytest.mark.parametrize("verb", ["get", "erase", "list", "store"])
def test_every_verb_tells_a_fault_on_the_standard_output(keyed: Home, verb: str) -> None:
    """Clients show that, in backquotes, and nothing of the standard error."""
    incomplete = Home(keyed.folder, {**keyed.environment, "ENTREPOT_SECRET_ACCESS_KEY": ""})
    login = {"ServerURL": "registry.example.com", "Username": "token", "Secret": "rlc_secret"}
    sent = json.dumps(login) if verb == "store" else "registry.example.com"
    ended = helper(incomplete, verb, stdin=sent)
    assert (ended.status, ended.err) == (1, "")
    assert "set ENTREPOT_SECRET_ACCESS_KEY too" in ended.out
    assert ended.out.count("\n") == 1


def test_a_registry_that_is_not_there_is_told_on_the_standard_output(keyed: Home) -> None:
    elsewhere = Home(keyed.folder, {**keyed.environment, "ENTREPOT_REGISTRY": "http://127.0.0.1:1"})
    ended = helper(elsewhere, "get", stdin="127.0.0.1:1")
    assert (ended.status, ended.err) == (1, "")
    assert "http://127.0.0.1:1" in ended.out
    assert ended.out.count("\n") == 1


def test_an_access_key_in_the_environment_needs_no_sign_in(world: World, keyed: Home) -> None:
    first = given(keyed, world.host)
    assert world.admits(first)
    assert given(keyed, world.host) == first
    assert world.install.secret not in all_text(keyed.folder)
    assert json.loads(helper(keyed, "list").out) == {world.host: "token"}
    assert world.run("repositories", "list", home=keyed).status == 0
    who = world.run("whoami", "-o", "json", home=keyed)
    assert json.loads(who.out)["access_key_id"] == world.install.access_key_id
    invited = world.run("invitations", "create", "a@b.test", home=keyed)
    assert "only people may do this" in invited.err
    # A file of the secret does too.
    secret = keyed.folder / "secret"
    secret.write_text(f"{world.install.secret}\n")
    environment = {**keyed.environment, "ENTREPOT_SECRET_ACCESS_KEY_FILE": str(secret)}
    del environment["ENTREPOT_SECRET_ACCESS_KEY"]
    by_file = Home(keyed.folder / "other", environment)
    assert world.admits(given(by_file, world.host))


def test_a_user_without_a_home_can_use_the_environment(
    world: World, keyed: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container whose user id is in no list of users."""

    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", unknown)
    assert credentials_path({}) == Path("/.config/entrepot/credentials.json")
    nowhere = Home(Path("/proc/none"), keyed.environment)
    assert world.admits(given(nowhere, world.host))


def test_the_secret_goes_to_no_other_registry(world: World, home: Home, keyed: Home) -> None:
    """Not even to one that a client asks for, or that a command names."""
    elsewhere = {**keyed.environment, "ENTREPOT_REGISTRY": "https://registry.invalid"}
    assert helper(Home(keyed.folder, elsewhere), "get", stdin=world.host) == (1, NOT_FOUND, "")
    other = Home(keyed.folder, elsewhere)
    ended = world.run("repositories", "list", "--registry", world.install.url, home=other)
    assert ended.status == 4
    assert "not signed in to" in ended.err
    # A sign-in to it counts, as before.
    both = Home(home.folder, elsewhere)
    ended = world.run("repositories", "list", "--registry", world.install.url, home=both)
    assert (ended.status, ended.err) == (0, "")
    assert json.loads(helper(both, "list").out).keys() == {"registry.invalid", world.host}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ENTREPOT_REGISTRY": ""}, "set ENTREPOT_REGISTRY too"),
        ({"ENTREPOT_SECRET_ACCESS_KEY": ""}, "set ENTREPOT_SECRET_ACCESS_KEY too"),
        ({"ENTREPOT_REGISTRY": "http://registry.invalid"}, "ENTREPOT_INSECURE_HTTP=1"),
        (
            {"ENTREPOT_SECRET_ACCESS_KEY": "", "ENTREPOT_SECRET_ACCESS_KEY_FILE": "/no/file"},
            "cannot read /no/file: No such file",
        ),
        (
            {"ENTREPOT_SECRET_ACCESS_KEY": "", "ENTREPOT_SECRET_ACCESS_KEY_FILE": "/bin/sh"},
            "/bin/sh does not hold a secret access key",
        ),
    ],
)
def test_an_incomplete_key_is_told(
    world: World, keyed: Home, changes: dict[str, str], words: str
) -> None:
    incomplete = Home(keyed.folder, {**keyed.environment, **changes})
    ended = world.run("repositories", "list", home=incomplete)
    assert ended.status in (1, 2)
    assert words in ended.err
    assert world.install.secret not in ended.err


# The kubelet's plugin.

RESPONSE: Final = {
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "cacheKeyType"],
    "properties": {
        "apiVersion": {"const": API},
        "kind": {"const": "CredentialProviderResponse"},
        "cacheKeyType": {"enum": ["Image", "Registry", "Global"]},
        "cacheDuration": {"type": "string", "pattern": "^([0-9]+(h|m|s|ms))+$"},
        "auth": {
            "type": ["object", "null"],
            "additionalProperties": {
                "type": "object",
                "additionalProperties": False,
                "required": ["username", "password"],
                "properties": {"username": {"type": "string"}, "password": {"type": "string"}},
            },
        },
    },
}
"""The types of k8s.io/kubelet/pkg/apis/credentialprovider/v1."""


def request(image: str, **more: object) -> str:
    return json.dumps(
        {"apiVersion": API, "kind": "CredentialProviderRequest", "image": image, **more}
    )


def provided(home: Home, image: str, **more: object) -> Any:  # noqa: ANN401 - JSON
    ended = run(credential_provider.main, home, stdin=request(image, **more))
    assert (ended.status, ended.err) == (0, "")
    response = json.loads(ended.out)
    jsonschema.validate(response, RESPONSE)
    return response


def test_the_kubelet_gets_a_password_for_the_images_host(world: World, keyed: Home) -> None:
    response = provided(keyed, f"{world.host}/acme/web/frontend@sha256:{'0' * 64}")
    (host,) = response["auth"]
    assert host == world.host
    assert response["cacheKeyType"] == "Registry"
    auth = response["auth"][host]
    assert auth["username"] == "token"
    assert world.admits(auth["password"])
    assert 8 * 3600 < int(response["cacheDuration"].removesuffix("s")) <= 9 * 3600
    assert not keyed.folder.exists()  # nothing is kept


def test_the_kubelet_gets_nothing_for_other_hosts(keyed: Home) -> None:
    more = {"serviceAccountToken": "x", "serviceAccountAnnotations": {"a": "b"}}
    response = provided(keyed, "registry.example.com/app:1", **more)
    assert (response["auth"], response["cacheDuration"]) == ({}, "0s")


@pytest.mark.parametrize(
    ("stdin", "words"),
    [
        ("", "holds no CredentialProviderRequest"),
        (b"\xff", "holds no CredentialProviderRequest"),
        ("[]", "holds no CredentialProviderRequest"),
        (json.dumps({"apiVersion": API, "kind": "CredentialProviderRequest"}), "`image`"),
        (request("a/b").replace("/v1", "/v1beta1"), f"set apiVersion: {API} in"),
        (request("a/b").replace("Request", "Response"), "is a CredentialProviderResponse"),
        (request("app:1"), "'app:1' names no registry"),
        (request("/app"), "names no registry"),
    ],
)
def test_what_is_no_request_is_told_in_the_kubelets_log(
    keyed: Home, stdin: str | bytes, words: str
) -> None:
    ended = run(credential_provider.main, keyed, stdin=stdin)
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith("entrepot-credential-provider: ")
    assert words in ended.err


def test_a_wrong_key_is_told_in_the_kubelets_log(world: World, keyed: Home) -> None:
    wrong = Home(keyed.folder, {**keyed.environment, "ENTREPOT_SECRET_ACCESS_KEY": "wrong"})
    ended = run(credential_provider.main, wrong, stdin=request(f"{world.host}/app"))
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith("entrepot-credential-provider: invalid_client: ")


# The programs.


def test_the_programs_are_of_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name in (credential_helper.NAME, credential_provider.NAME):
        module, _, function = project["scripts"][name].partition(":")
        assert callable(getattr(import_module(module), function))


def test_the_helper_starts_without_heavy_modules() -> None:
    """A client runs it for each image."""
    heavy = ("asyncio", "cryptography", "http.server", "litestar", "rich", "sqlalchemy", "jinja2")
    code = (
        "import sys, registry.cli.credential_helper, registry.cli.credential_provider;"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code],
        env=Home(Path("/nowhere")).environ,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert shown.stdout == "[]\n"

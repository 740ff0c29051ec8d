"""``entrepot init`` and ``serve``: an install gets one owner, and none is served without."""

from __future__ import annotations

import secrets
import socket
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.entrepot import ADMIN, Home, initialized, mode_of, told

INIT = ("init", "--account", "acme", "--admin-email", ADMIN)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the folder of an install, and what was shown when it was made."""
    data = tmp_path_factory.mktemp("install") / "data"
    return data, initialized(data)


@pytest.fixture
def install(made: tuple[Path, str], tmp_path: Path) -> Path:
    """Return a copy of an install that the test may spoil."""
    source, _ = made
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    with (
        sqlite3.connect(source / "metadata.db") as before,
        sqlite3.connect(data / "metadata.db") as copy,
    ):
        before.backup(copy)
    before.close()
    copy.close()
    (data / "root.key").touch(mode=0o600)
    (data / "root.key").write_bytes((source / "root.key").read_bytes())
    return data


def test_init_shows_each_secret_once_and_leaves_none_in_the_open(made: tuple[Path, str]) -> None:
    data, shown = made
    key = told("access key id", shown)
    assert shown.count(key) == 2  # where it is told, and in the line to type next
    for label in ("one-time password", "secret access key"):
        secret = told(label, shown)
        assert shown.count(secret) == 1
        for path in data.glob("*.*"):
            assert secret.encode() not in path.read_bytes()
    assert mode_of(data) == 0o700
    assert mode_of(data / "root.key") == 0o600
    assert len((data / "root.key").read_bytes()) == 32
    assert f"\n  entrepot serve --data {data}\n" in shown  # as it must be typed next
    assert shown.endswith("\nWith another --host or --port, at the URL it prints.\n")


def test_init_refuses_where_there_is_an_account(install: Path, home: Home) -> None:
    # Even without its root key: another one would open nothing of this install.
    (install / "root.key").unlink()
    ended = home.run(*INIT, "--data", str(install))
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr == (
        f"entrepot: there is an account in {install} already; sign in with 'entrepot login URL', "
        "or begin another install with --data (who has lost its credentials: "
        "'entrepot reset-password', 'entrepot new-access-key')\n"
    )
    assert not (install / "root.key").exists()


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--account", "Acme_", "a handle is 2 to 32 of a-z 0-9, in parts joined by single hyphens"),
        ("--account", "a", "a handle is 2 to 32 of a-z 0-9, in parts joined by single hyphens"),
        ("--admin-email", "admin", "this is no e-mail address"),
        ("--admin-email", "a b@example.org", "this is no e-mail address"),
    ],
)
def test_init_refuses_names_before_it_makes_anything(
    option: str, value: str, words: str, home: Home, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    ended = home.run(*INIT, option, value, "--data", str(data))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"entrepot: {option} {value!r}: {words}\n"
    assert not data.exists()


def test_serve_refuses_without_an_account_and_names_the_command(home: Home, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for _ in ("no folder", "an empty one"):
        ended = home.run("serve", "--port", "0", "--data", str(data))
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr == (
            f"entrepot: there is no account in {data}; name its folder by --data or --config, or "
            "first run "
            "'entrepot init --account HANDLE --admin-email ADDRESS'\n"
        )
        assert not list(data.glob("root.key"))
        data.mkdir(exist_ok=True)


def spoil_mode(key: Path) -> None:
    key.chmod(0o644)


def shorten(key: Path) -> None:
    key.write_bytes(b"short")


def exchange(key: Path) -> None:
    key.write_bytes(secrets.token_bytes(32))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (Path.unlink, "cannot read the root key {key}: No such file or directory"),
        (spoil_mode, "others can read the root key {key}: chmod 600 it"),
        (shorten, "the root key {key} has 5 bytes, not 32"),
        (exchange, "{key} is not the root key of this install; put that one back"),
    ],
)
def test_serve_refuses_a_root_key_it_cannot_use(
    spoil: Callable[[Path], None], words: str, install: Path, home: Home
) -> None:
    key = install / "root.key"
    spoil(key)
    ended = home.run("serve", "--port", "0", "--data", str(install))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"entrepot: {words.format(key=key)}")
    assert ended.stderr.count(str(key)) == 1
    assert ended.stderr.count("\n") == 1


def test_serve_tells_in_a_line_what_the_system_refuses(
    install: Path, home: Home, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    new = ("--account", "acme", "--admin-email", "a@example.org")
    for command in (("serve",), ("init", *new), ("config", "show")):
        ended = home.run(*command, "--data", str(tmp_path / "file"))
        assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
        assert f"data: {tmp_path / 'file'} is a file" in ended.stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = home.run("serve", "--port", str(port), "--data", str(install))
    assert ended.returncode == 2
    assert ended.stderr == (
        f"entrepot: another process listens on 127.0.0.1:{port}; "
        "name another port (--port, --metrics, --s3-port, --tls-acme-http), or 0 for a free one\n"
    )


def test_serve_says_how_to_name_an_address_that_this_machine_has(install: Path, home: Home) -> None:
    addresses = (("--host", "192.0.2.1", "0"), ("--metrics", "192.0.2.1:9464", "9464"))
    for option, value, port in addresses:
        ended = home.run("serve", "--port", "0", option, value, "--data", str(install))
        assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
        assert ended.stderr.startswith(f"entrepot: nothing can listen on 192.0.2.1:{port}: ")
        assert "name an address of this machine (--host, --metrics" in ended.stderr


def test_what_the_client_commands_read_is_no_unknown_setting(install: Path, tmp_path: Path) -> None:
    known = {"ENTREPOT_REGISTRY": "http://127.0.0.1:1", "ENTREPOT_ACCESS_KEY_ID": "AK"}
    home = Home(tmp_path, known)
    ended = home.run("fsck", "--data", str(install))
    assert ended.returncode == 0, ended.stderr

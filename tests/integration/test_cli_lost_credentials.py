"""``entrepot reset-password`` and ``new-access-key``: who runs an install gets back into it."""

from __future__ import annotations

import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection
from cloudcore.db.opening import open_database
from cloudcore.iam.passwords import hash_password, match_passwords, salt_of
from cloudcore.identity.recovery import reset_password
from cloudcore.identity.rows import users
from cloudcore.identity.rows.organizations import ORGANIZATIONS, Organization
from cloudcore.identity.rows.users import User
from cloudcore.identity.services.users import add_person, create_user
from cloudcore.keyring import KEY_BYTES, create_root_key
from tests.databases import on_both_databases, program_environment
from tests.entrepot import ADMIN, PASSWORD, Home, Install, Waiting, fetch_code, installed, told
from tests.integration.oauth_world import World
from tests.passwords import CHEAP

KILLED_BEFORE_IT_TELLS = f"""
import os, signal, sys
from registry.cli import main
from registry.cli.server import serve
serve.write_now = lambda _: os.kill(os.getpid(), signal.SIGKILL)
main.main(["init", "--account", "acme", "--admin-email", "{ADMIN}", "--data", sys.argv[1]])
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture(scope="module")
def install(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Install, Path]]:
    """Serve an install, and return it with its data folder."""
    data = tmp_path_factory.mktemp("install") / "data"
    with installed(data) as made:
        yield made, data


def test_an_install_whose_init_was_killed_before_it_told_is_entered_all_the_same(
    home: Home, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    died = subprocess.run(
        [sys.executable, "-c", KILLED_BEFORE_IT_TELLS, str(data)],
        env=program_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (died.returncode, died.stdout) == (-signal.SIGKILL, "")
    again = home.run("init", "--account", "acme", "--admin-email", ADMIN, "--data", str(data))
    assert again.returncode == 2
    assert "'entrepot reset-password', 'entrepot new-access-key'" in again.stderr
    person = home.run("reset-password", ADMIN, "--data", str(data))
    program = home.run("new-access-key", "admin", "--data", str(data))
    assert (person.returncode, program.returncode) == (0, 0), person.stderr + program.stderr
    for shown, label in ((person, "one-time password"), (program, "secret access key")):
        secret = told(label, shown.stdout)
        assert shown.stdout.count(secret) == 1
        assert secret not in shown.stderr
        assert all(secret.encode() not in path.read_bytes() for path in data.glob("*.*"))
    assert f"the password of {ADMIN} was reset on this machine" in person.stderr
    with closing(sqlite3.connect(data / "metadata.db")) as database:
        events = database.execute("SELECT action, details FROM audit_events").fetchall()
    assert {("iam:ChangePassword", '{"command":"entrepot reset-password"}')} < set(events)
    assert ("iam:CreateAccessKey", '{"command":"entrepot new-access-key"}') in events
    key = told("access key id", program.stdout)
    assert f"the access key {key} was added to admin of acme" in program.stderr


def test_a_new_password_beside_the_server_ends_what_the_old_one_began(
    install: tuple[Install, Path], home: Home
) -> None:
    made, data = install
    waiting = Waiting(home, made.url)
    signed_in = waiting.give(fetch_code(waiting.page, made.one_time_password, PASSWORD))
    assert signed_in.returncode == 0, signed_in.stderr
    token = home.stored()[made.url]["token"]["access_token"]
    assert made.status(token) == 403  # known, and without a role
    late = Waiting(home, made.url)
    code = fetch_code(late.page, PASSWORD)
    reset = home.run("reset-password", ADMIN.upper(), "--data", str(data))
    assert reset.returncode == 0, reset.stderr
    assert f" {made.url}/console\n" in reset.stdout  # of the server, whose port it was not told
    assert made.status(token) == 401
    assert late.give(code).returncode != 0  # a code is a session to be
    one_time = told("one-time password", reset.stdout)
    last = Waiting(home, made.url)
    with pytest.raises(AssertionError):
        fetch_code(last.page, PASSWORD)
    ended = last.give(fetch_code(last.page, one_time, "another password of mine"))
    assert ended.returncode == 0, ended.stderr


def token_of(url: str, key: str, secret: str) -> int:
    form = {"grant_type": "client_credentials"}
    return httpx.post(f"{url}/v1/oauth/token", data=form, auth=(key, secret)).status_code


def test_a_new_key_beside_the_server_is_good_at_once(
    install: tuple[Install, Path], home: Home
) -> None:
    made, data = install

    def pair(shown: str) -> tuple[str, str]:
        return told("access key id", shown), told("secret access key", shown)

    second = home.run("new-access-key", "admin", "--account", "acme", "--data", str(data))
    assert second.returncode == 0, second.stderr
    assert f"\n  entrepot login {made.url} --access-key-id" in second.stdout
    assert token_of(made.url, *pair(second.stdout)) == 200
    third = home.run("new-access-key", "admin", "--data", str(data))
    assert third.returncode == 2
    assert "--replace to delete them" in third.stderr
    third = home.run("new-access-key", "admin", "--replace", "--data", str(data))
    assert third.returncode == 0, third.stderr
    assert token_of(made.url, *pair(third.stdout)) == 200
    assert token_of(made.url, *pair(second.stdout)) == 401
    assert token_of(made.url, made.access_key_id, made.secret) == 401


@on_both_databases
async def test_who_is_suspended_stays_so_unless_asked_for(oauth: World) -> None:
    user = await oauth.add_user("ann@example.com")
    await oauth.run("UPDATE users SET status = 'suspended'")
    with pytest.raises(Exception, match="is suspended; add --resume"):
        await oauth.database.write(reset_password, user.id, "kept", oauth.now, resumes=False)
    await oauth.database.write(reset_password, user.id, "kept", oauth.now, resumes=True)
    kept = await oauth.database.read(users.find_user, user.id)
    assert kept is not None
    assert (kept.status, kept.password, kept.must_change_password) == ("active", "kept", True)


async def test_of_several_persons_of_an_address_one_is_named_by_its_organization(
    home: Home, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    made = home.run("init", "--account", "acme", "--admin-email", ADMIN, "--data", str(data))
    assert made.returncode == 0, made.stderr
    other, alone = await _add_namesakes(data)
    reset = ("reset-password", ADMIN, "--data", str(data))
    several = home.run(*reset)
    assert (several.returncode, several.stdout) == (2, "")
    assert "3 persons have the address" in several.stderr
    listed = dict(re.findall(r"^  ([0-9a-f-]{36})  (.+)$", several.stderr, re.MULTILINE))
    assert sorted(listed.values()) == ["Other", "main", "none but its own"]
    assert (listed[other.home_organization_id or ""], listed[alone.organization_id]) == (
        "Other",
        "none but its own",
    )
    absent = home.run(*reset, "--organization", str(uuid7()))
    assert (absent.returncode, absent.stdout) == (3, "")
    for organization, person in (
        ((other.home_organization_id or "").upper(), other),
        (alone.organization_id, alone),
    ):
        done = home.run(*reset, "--organization", organization)
        assert done.returncode == 0, done.stderr
        people = await _people(data)
        changed = [each.id for each in people if each.must_change_password]
        assert person.id in changed
        password = told("one-time password", done.stdout)
        matches = match_passwords(password, [each.password for each in people])
        assert [each.id for each, is_right in zip(people, matches, strict=True) if is_right] == [
            person.id
        ]
        kept = next(each for each in people if each.id == person.id)
        assert salt_of(kept.password) == salt_of(person.password)


async def _people(data: Path) -> list[User]:
    database = open_database(f"sqlite:///{data / 'metadata.db'}")
    try:
        return await database.read(users.list_users_by_email, ADMIN)
    finally:
        await database.close()


async def _add_namesakes(data: Path) -> tuple[User, User]:
    """Add a person of another organization, and one of none, who have the first one's address."""
    (first,) = await _people(data)
    kept = hash_password("nobody knows it", CHEAP, salt_of(first.password))
    other = Organization(uuid7(), "Other", 1, 1)
    made = [User(uuid7(), ADMIN, kept, uuid7(), 1, 1, must_change_password=False) for _ in range(2)]

    def add(tx: Connection) -> tuple[User, User]:
        ORGANIZATIONS.add(tx, other)
        return create_user(tx, other.id, made[0]), add_person(tx, made[1])

    database = open_database(f"sqlite:///{data / 'metadata.db'}")
    try:
        created, alone = await database.write(add)
    finally:
        await database.close()
    return created._replace(home_organization_id=other.id), alone


def test_a_root_key_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "root.key"

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr("os.write", die)
        with pytest.raises(KeyboardInterrupt):
            create_root_key(path)
    assert list(tmp_path.iterdir()) == []
    create_root_key(path)
    assert len(path.read_bytes()) == KEY_BYTES
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        create_root_key(path)
    assert [each.name for each in tmp_path.iterdir()] == ["root.key"]

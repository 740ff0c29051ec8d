"""Commands that would end what they are signed in by, or take the rights of whoever runs them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

from tests.entrepot import ADMIN, PASSWORD, Home
from tests.integration.cli_world import World, cli_world

EVERY: Final = {"effect": "allow", "actions": ["*"], "resources": ["*"]}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with cli_world(tmp_path_factory.mktemp("world")) as made:
        yield made


@pytest.fixture
def name() -> str:
    """Return a name of this test's own."""
    return f"n-{uuid4().hex[:12]}"


def policy(*statements: object) -> str:
    """Return a policy as JSON."""
    return json.dumps({"version": "1", "statements": statements})


def test_one_of_two_keys_is_replaced_at_once(world: World, name: str, tmp_path: Path) -> None:
    bot = name
    world.done("service-accounts", "create", bot)
    first = world.read("access-keys", "create", bot)
    old = world.read("access-keys", "create", bot)["access_key_id"]
    new = world.read("access-keys", "rotate", bot, old, "--now")["access_key_id"]
    keys = world.read("access-keys", "list", bot)
    assert {each["access_key_id"]: each["status"] for each in keys} == {
        first["access_key_id"]: "active",
        old: "inactive",
        new: "active",
    }
    # One that cannot be created leaves the old one as it was.
    past = ("--expires-at", "2001-01-31T12:00:00Z")
    status, words = world.told("access-keys", "rotate", bot, new, "--now", *past)
    assert (status, words.partition(":")[0]) == (1, "INVALID_INPUT")
    assert world.read("access-keys", "list", bot)[2]["status"] == "active"
    # The key that the command itself is signed in by is not ended before there is another.
    world.done("policies", "create", name, "-", stdin=policy({**EVERY, "actions": ["iam:*"]}))
    world.done("policies", "attach", name, "--service-account", bot)
    home = Home(tmp_path)
    login = ("login", world.install.url, "--access-key-id", first["access_key_id"])
    world.done(*login, stdin=f"{first['secret_access_key']}\n", home=home)
    own = ("access-keys", "rotate", bot, first["access_key_id"], "--now")
    status, words = world.told(*own, home=home)
    assert status == 1
    assert f"signed in by {first['access_key_id']}" in words
    world.done("access-keys", "delete", bot, new)
    assert "works no more" in world.done(*own, home=home).lines[0]
    assert world.told("whoami", home=home)[0] == 4


def test_a_program_takes_its_own_rights_by_force_alone(
    world: World, name: str, tmp_path: Path
) -> None:
    file = tmp_path / "denies.json"
    file.write_text(policy({**EVERY, "effect": "deny"}))
    world.done("policies", "create", name, str(file))
    homes = (tmp_path / str(number) for number in range(10))
    for command in (
        "policies attach {other} --service-account {own}",
        "policies detach {own} --service-account {own}",
        "policies update {own} {file}",
        "service-accounts update {own} --status suspended",
        "service-accounts delete {own}",
        "access-keys update {own} {key} --status inactive",
        "access-keys delete {own} {key}",
    ):
        home = Home(next(homes))
        world.sign_in(home, EVERY)
        shown = world.read("whoami", home=home)
        own, key = shown["service_account"], shown["access_key_id"]
        words = command.format(own=own, other=name, file=file, key=key).split()
        status, told = world.told(*words, home=home)
        assert (status, told.partition(":")[0]) == (1, "CONFLICT"), command
        assert "the right to iam:AttachPolicy" in told
        assert "use force if you intend that (?force=true, --force)" in told
        world.done(*words, "--force", home=home)
        assert world.told("policies", "list", home=home)[0] in (1, 4), command


def test_a_person_takes_its_own_rights_by_force_alone(
    world: World, name: str, tmp_path: Path
) -> None:
    owner = Home(tmp_path / "owner")
    world.sign_in_person(owner, ADMIN, world.install.one_time_password, PASSWORD, role="admin")
    file = tmp_path / "trust.json"
    account = world.read("whoami")["account_id"]
    file.write_text(policy({"effect": "allow", "principals": [account]}))
    for number, command in enumerate(
        ("roles unassign {own} {person}", "roles update {own} --trust {file}", "roles delete {own}")
    ):
        own = f"{name}-{number}"
        world.done("roles", "create", own, "--user", ADMIN, "--policy", "admin")
        world.done("roles", "assume", own, home=owner)
        words = command.format(own=own, person=ADMIN, file=file).split()
        status, told = world.told(*words, home=owner)
        assert (status, told.partition(":")[0]) == (1, "CONFLICT"), command
        assert "end your own session" in told
        world.done(*words, "--force", home=owner)
        world.done("roles", "assume", "admin", home=owner)

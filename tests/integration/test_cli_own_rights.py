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

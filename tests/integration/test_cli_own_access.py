"""A person's named passwords for container clients, and the accounts of their organizations."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.entrepot import ADMIN, PASSWORD, Home
from tests.integration.cli_world import JSON, World, cli_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    with cli_world(folder, ENTREPOT_FOUNDERS="owners") as made:
        yield made


@pytest.fixture(scope="module")
def owner(world: World, tmp_path_factory: pytest.TempPathFactory) -> Home:
    home = Home(tmp_path_factory.mktemp("owner"))
    world.sign_in_person(home, ADMIN, world.install.one_time_password, PASSWORD, role="admin")
    return home


@pytest.fixture
def name() -> str:
    return f"n{uuid4().hex[:12]}"


def test_a_password_is_made_shown_once_and_revoked(world: World, owner: Home, name: str) -> None:
    made = world.done("container-passwords", "create", name, home=owner)
    assert f"Made {name}, which acts as admin of acme until " in made.text
    password = next(line for line in made.lines if line.startswith("password")).split()[-1]
    assert "Keep it now: it is shown this once." in made.text
    assert world.admits(password)

    (row,) = [
        row
        for row in world.done("container-passwords", "list", home=owner).lines
        if row.startswith(name)
    ]
    assert row.startswith(f"{name} acme admin ")
    shown = world.done("container-passwords", "list", *JSON, home=owner)
    assert password not in shown.text
    assert name in [each["name"] for each in shown.document]
    ended = world.done("container-passwords", "delete", name, home=owner)
    assert ended.text == f"Deleted {name}\n"
    assert not world.admits(password)
    assert world.told("container-passwords", "delete", name, home=owner) == (
        3,
        (
            f"there is no container password {name!r}; "
            "'entrepot container-passwords list' shows those there are"
        ),
    )


def test_a_password_alone_can_be_piped(world: World, owner: Home, name: str) -> None:
    arguments = ("container-passwords", "create", name, "--quiet", "--expires-in", "1h")
    ended = world.run(*arguments, home=owner)
    assert ended.status == 0
    assert world.admits(ended.text.strip())


def test_a_client_is_logged_in_and_nothing_secret_printed(
    world: World, owner: Home, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client is a script that keeps what it is told."""
    heard = tmp_path / "heard"
    client = tmp_path / "podman"
    client.write_text(f'#!/bin/sh\necho "$@" > {heard}\ncat >> {heard}\n')
    client.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    arguments = ("container-passwords", "create", name, "--client", "podman")
    ended = world.done(*arguments, home=owner)
    command, password = heard.read_text().splitlines()
    assert command == f"login --username token --password-stdin --tls-verify=false {world.host}"
    assert world.admits(password)
    assert password not in ended.text


def test_a_program_has_no_named_passwords(world: World) -> None:
    status, words = world.told("container-passwords", "create", "laptop")
    assert status == 1
    assert "only people may do this" in words


def test_an_account_is_founded_acted_in_suspended_and_resumed(
    world: World, owner: Home, name: str
) -> None:
    made = world.done("accounts", "create", name, home=owner)
    assert made.text.startswith(f"Created {name} (")
    advice = made.text.partition("'")[2].partition("'")[0]
    assert advice.startswith("entrepot roles assume crn:iam::")

    status, words = world.told("accounts", "create", name, home=owner)
    assert status == 1
    assert words.startswith("CONFLICT: the handle is taken")
    listed = world.done("accounts", "list", home=owner).lines
    assert listed[0] == "HANDLE STATUS ORGANIZATION CREATED ID"
    assert {line.split()[0] for line in listed[1:]} >= {"acme", name}
    assert name in world.done("accounts", "list", "--quiet", home=owner).text.splitlines()

    world.done(*advice.split()[1:], home=owner)
    world.done("repositories", "create", "app", home=owner)
    assert world.read("repositories", "list", home=owner)[0]["name"] == "app"
    world.done("roles", "assume", "crn:iam::acme:role/admin", home=owner)

    ended = world.done("accounts", "suspend", name, "--yes", home=owner)
    assert ended.text == f"{name} is suspended\n"
    assert world.read("accounts", "show", name, home=owner)["status"] == "suspended"
    assert world.run(*advice.split()[1:], home=owner).status != 0
    assert world.done("accounts", "resume", name, home=owner).text == f"{name} is active\n"


def test_a_program_sees_its_own_account_and_sets_no_status(world: World) -> None:
    assert world.done("accounts", "list", "--quiet").text == "acme\n"
    status, words = world.told("accounts", "suspend", "acme", "--yes")
    assert status == 1
    assert "only people may do this" in words


def test_who_may_not_found_accounts_is_told_so(tmp_path: Path, name: str) -> None:
    with cli_world(tmp_path) as closed:
        home = Home(tmp_path / "owner")
        closed.sign_in_person(home, ADMIN, closed.install.one_time_password, PASSWORD)
        told = closed.told("accounts", "create", name, home=home)
        assert told[0] != 0
        assert "nobody may found organizations and accounts here; ask the operator" in told[1]

"""A person's named passwords for container clients, and the accounts of their organizations."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.entrepot import ADMIN, PASSWORD, Home
from tests.integration.cli_world import World, cli_world


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


def test_who_may_not_found_accounts_is_told_so(tmp_path: Path, name: str) -> None:
    with cli_world(tmp_path) as closed:
        home = Home(tmp_path / "owner")
        closed.sign_in_person(home, ADMIN, closed.install.one_time_password, PASSWORD)
        told = closed.told("accounts", "create", name, home=home)
        assert told[0] != 0
        assert "nobody may found organizations and accounts here; ask the operator" in told[1]

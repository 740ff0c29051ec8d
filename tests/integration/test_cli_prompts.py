"""What commands ask a person at a terminal, and what they show to nobody else."""

from __future__ import annotations

import io
from collections.abc import Iterator
from types import SimpleNamespace
from uuid import uuid4

import pytest

from tests.entrepot import ADMIN, AtTerminal
from tests.integration.cli_world import World, cli_world

RULES = '{"rules": [{"priority": 1, "selector": "any", "keep_last": 1}]}'


class Terminal(io.StringIO):
    """A person at a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with cli_world(tmp_path_factory.mktemp("world")) as made:
        yield made


@pytest.fixture
def app(world: World) -> str:
    """Return the name of a repository of this test's own."""
    name = f"app-{uuid4().hex[:12]}"
    world.done("repositories", "create", name)
    return name


def test_a_person_is_asked_before_what_takes_something_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.done("policies", "create", "x", "--pull", "web/*")
    world.done("service-accounts", "create", "x")
    world.done("policies", "attach", "x", "--service-account", "x")
    world.done("keys", "create", "x")
    world.done("buckets", "create", "xxx")
    world.run("buckets", "put", "xxx", "file", "-", stdin="kept")
    for command, question in (
        ("policies detach x --service-account x", "Take the policy x from x, and its rights?"),
        (
            f"roles unassign admin {ADMIN}",
            f"Take the role admin from {ADMIN}, and end their sessions of it?",
        ),
        (
            "keys disable x",
            "Disable the key x? What it seals can be neither pulled nor pushed then.",
        ),
        (
            "buckets remove xxx file",
            "Delete these objects of the bucket xxx? Nothing brings them back.",
        ),
    ):
        terminal = SimpleNamespace(stdin=Terminal("n\n"), stderr=Terminal())
        with monkeypatch.context() as asked:
            asked.setattr("cloudcore.commands.prompts.sys", terminal)
            assert world.told(*command.split()) == (1, "nothing was changed")
        assert terminal.stderr.getvalue() == f"{question} [y/N] "
    assert len(world.read("policies", "attachments", "x")) == 1
    assert ADMIN in world.done("roles", "assignments", "admin", "-q").lines
    assert world.read("keys", "show", "x")["state"] == "enabled"
    assert [each["key"] for each in world.read("buckets", "objects", "xxx")] == ["file"]
    monkeypatch.setattr("cloudcore.commands.prompts.sys", SimpleNamespace(stdin=Terminal("n\n")))
    world.done("keys", "disable", "x", "-y")
    world.done("buckets", "remove", "xxx", "file", "--yes")


def test_a_person_at_a_terminal_is_asked_first(world: World, app: str) -> None:
    digest = world.push(app, "v1")
    for answer, status in (("n", 1), ("y", 0)):
        with AtTerminal(world.home, "images", "delete", f"{app}@{digest}") as person:
            person.type(answer, after=b"[y/N] ")
            assert f"Delete images (1) and tags (0) of {app}?".encode() in person.shown
            ended, printed = person.ended()
        assert (ended, b" deleted " in printed) == (status, answer == "y")
    assert world.told("images", "show", f"{app}@{digest}")[0] == 3


def test_progress_is_shown_to_a_person_alone(world: World, app: str) -> None:
    world.done("lifecycle", "set", app, "-", stdin=RULES)
    with AtTerminal(world.home, "lifecycle", "run", app, "--wait", "--yes") as person:
        status, printed = person.ended()
        assert (status, printed[:11]) == (0, b"Succeeded: ")
        person.see(b"expired 0 images, looked at ")

"""``entrepot quotas``: an operator sets limits on the machine, and an account sees its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from registry.cli.server import quota_limits
from tests.integration.cli_world import World, cli_world


@pytest.fixture(autouse=True)
def logging_of_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a command that runs in this process from taking the log over."""
    monkeypatch.setattr(quota_limits, "configure_logging", lambda: None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quotas")


@pytest.fixture(scope="module")
def world(folder: Path) -> Iterator[World]:
    with cli_world(folder) as made:
        yield made


def test_what_an_operator_sets_holds_from_the_next_request_on(world: World, folder: Path) -> None:
    def operate(*arguments: str) -> str:
        ended = world.run("quotas", *arguments, "--data", str(folder / "data"))
        assert ended.status == 0, ended.err
        return ended.text

    assert "acme may have 1 queues" in operate("set", "queues", "1", "--account", "acme")
    assert "may have 5 topics" in operate("set", "topics", "5")
    world.done("queues", "create", "one")
    assert "QUOTA_EXCEEDED" in world.told("queues", "create", "two")[1]
    shown = world.done("quotas", "show", "queues", "--output", "json").document
    assert (shown["limit"], shown["used"]) == (1, 1)
    assert "queues" in world.done("quotas", "list", "-q").lines
    shown_all = world.done("quotas", "list").lines
    for each in ("registry_bytes 0 B", "images 0"):
        assert any(line.startswith(f"{each} any number any number") for line in shown_all)
    assert "is forgotten" in operate("reset", "queues", "--account", "acme")
    assert "nothing was changed" in operate("reset", "queues", "--account", "acme")
    world.done("queues", "create", "two")
    assert "acme may have 2 queues" in operate("set", "queues", "2", "--account", "acme")
    with closing(sqlite3.connect(folder / "data" / "metadata.db")) as database:
        events = database.execute(
            "SELECT action, json_extract(details, '$.command') FROM audit_events"
            " WHERE action LIKE 'quotas:%' ORDER BY occurred_at, id"
        ).fetchall()
        told = database.execute("SELECT type FROM outbox WHERE type LIKE 'quotas.%'").fetchall()
    assert events == [
        ("quotas:SetQuota", "entrepot quotas set queues 1"),
        ("quotas:ResetQuota", "entrepot quotas reset queues"),
        ("quotas:SetQuota", "entrepot quotas set queues 2"),
    ]
    # By the queue that was made, and by the limit that was set below what was there.
    assert told == [("quotas.quota.reached",), ("quotas.quota.reached",)]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("nothing", "1"), 2, "there is no quota nothing"),
        (("queues", "many"), 2, "'many' is not a whole number"),
        (("queues", "1", "--account", "other"), 3, "there is no account other"),
        (("organizations", "1", "--account", "acme"), 2, "are of each person"),
    ],
)
def test_what_cannot_be_set_is_refused(
    arguments: tuple[str, ...], status: int, words: str, world: World, folder: Path
) -> None:
    ended = world.run("quotas", "set", *arguments, "--data", str(folder / "data"))
    assert (ended.status, ended.text) == (status, "")
    assert words in ended.err


def test_an_operator_that_does_not_exist_is_refused(
    world: World, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENTREPOT_OPERATORS", "acme, nobody")
    data = ("--data", str(folder / "data"))
    ended = world.run("quotas", "set", "queues", "1", *data)
    assert (ended.status, "operators: there is no account nobody" in ended.err) == (2, True)
    monkeypatch.setenv("ENTREPOT_OPERATORS", "acme")
    assert world.run("quotas", "reset", "queues", *data).status == 0

"""``entrepot keys`` and ``entrepot encryption``, against a served registry."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest

from tests.entrepot import Home
from tests.integration.cli_world import World, cli_world


class Terminal(io.StringIO):
    """A person at a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with cli_world(tmp_path_factory.mktemp("world")) as made:
        yield made


@pytest.fixture
def name() -> str:
    """Return a name of this test's own."""
    return f"n-{uuid4().hex[:12]}"


@pytest.fixture
def key(world: World, name: str) -> str:
    """Return the name of a key of this test's own."""
    world.done("keys", "create", name, "--tag", "team=web", "--description", "Of a test.")
    return name


def test_a_key_is_made_listed_and_changed(world: World, key: str) -> None:
    shown = world.read("keys", "show", key)
    assert (shown["name"], shown["tags"], shown["state"]) == (key, {"team": "web"}, "enabled")
    assert key in world.done("keys", "list", "--quiet").text.split()
    assert world.read("keys", "show", shown["id"]) == shown == world.read("keys", "show", key)
    assert world.read("keys", "update", key, "--no-tags")["tags"] == {}
    assert world.told("keys", "update", key)[0] == 2
    assert world.told("keys", "show", "nobodys")[0] == 3
    assert world.done("keys", "rotate", key).lines == [f"{key} has version 2"]
    assert "has no" not in world.done("keys", "list").text


def test_a_person_is_asked_before_a_key_is_disabled_or_objects_are_removed(
    world: World, key: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("kept")
    world.done("buckets", "create", key)
    world.done("buckets", "put", key, "file", str(tmp_path / "file"))
    for command, question in (
        (
            ("keys", "disable", key),
            f"Disable the key {key}? What it seals can be neither pulled nor pushed then. [y/N] ",
        ),
        (
            ("buckets", "remove", key, "file"),
            f"Delete these objects of the bucket {key}? Nothing brings them back. [y/N] ",
        ),
    ):
        terminal = SimpleNamespace(stdin=Terminal("n\n"), stderr=Terminal())
        with monkeypatch.context() as asked:
            asked.setattr("registry.cli.output.prompts.sys", terminal)
            assert world.told(*command) == (1, "nothing was changed")
        assert terminal.stderr.getvalue() == question
    assert world.read("keys", "show", key)["state"] == "enabled"
    assert [each["key"] for each in world.read("buckets", "objects", key)] == ["file"]
    monkeypatch.setattr("registry.cli.output.prompts.sys", SimpleNamespace(stdin=Terminal("n\n")))
    world.done("keys", "disable", key, "-y")
    world.done("keys", "enable", key)
    world.done("buckets", "remove", key, "file", "--yes")


def test_a_key_is_disabled_enabled_deleted_and_kept(world: World, key: str) -> None:
    (line,) = world.done("keys", "disable", key).lines
    assert line.startswith(f"{key} is disabled: what it seals")
    disabled = world.read("keys", "list", "--state", "disabled")
    assert key in [each["name"] for each in disabled]
    assert world.done("keys", "enable", key).lines == [f"{key} is enabled"]
    deleted = world.done("keys", "delete", key, "--days", "7", "--yes").lines
    assert deleted[0] == "Blobs under it: 0; only it opens 0 of them (0 B)."
    assert deleted[-1].startswith(f"{key} is deleted at ")
    assert world.read("keys", "show", key)["state"] == "pending_deletion"
    assert "disabled" in world.done("keys", "cancel-deletion", key).text


def test_what_a_deletion_would_shred_is_named_before_it(world: World, key: str, name: str) -> None:
    world.done("repositories", "create", name, "--kms-key", key)
    digest = world.push(name, "v1")
    usage = world.read("keys", "usage", key)
    assert usage["exclusive_blob_count"] > 0
    assert usage["image_count"] == 1
    lines = world.done("keys", "delete", key).lines
    assert f"{name}@{digest}" in lines
    assert f"Images that cannot be pulled without it: {usage['image_count']}." in lines
    assert lines[:-1] == [" ".join(line.split()) for line in world.done("keys", "usage", key).lines]
    # A program that reads the record is not disturbed.
    world.done("keys", "cancel-deletion", key)
    ended = world.run("keys", "delete", key, "--output", "json")
    assert ended.document["state"] == "pending_deletion"
    assert f"{name}@{digest}" in ended.err


def test_who_may_not_read_what_a_key_protects_may_delete_it(
    world: World, key: str, tmp_path: Path
) -> None:
    home = Home(tmp_path)
    world.sign_in(home, {"effect": "allow", "actions": ["kms:*"], "resources": ["*"]})
    first, *_ = world.done("keys", "delete", key, home=home).lines
    assert "is unknown" in first


def test_a_repository_and_the_account_are_bound_and_freed(
    world: World, key: str, name: str
) -> None:
    world.done("repositories", "create", name)
    scope = ("--repository", name)
    bound = f"{name}: {key} (its own binding)"
    assert world.done("encryption", "set", key, *scope).lines == [bound]
    assert world.done("encryption", "show", *scope).lines == [bound]
    assert world.read("encryption", "show", *scope)["kms_key"]["name"] == key
    assert world.read("repositories", "show", name)["encryption"]["source"] == "repository"
    world.done("encryption", "set", "platform", *scope)
    history = world.read("encryption", "history", *scope)
    assert [row["kms_key"]["name"] for row in history] == ["platform", key]
    assert world.done("encryption", "history", *scope).lines[1].startswith("platform active")
    world.done("encryption", "reset", *scope)
    assert world.told("encryption", "reset", *scope)[0] == 3
    world.done("encryption", "set", key)
    assert world.done("encryption", "show", *scope).lines == [
        f"{name}: {key} (the account's default)"
    ]
    world.done("keys", "disable", key)
    assert "the key is disabled" in world.done("encryption", "show").text
    assert world.told("encryption", "set", key, *scope)[0] == 1
    world.done("encryption", "reset")
    assert "platform" in world.done("encryption", "show", *scope).text


def test_names_of_keys_are_completed(world: World, key: str) -> None:
    assert world.done("__complete", "key", key[:10]).lines == [key]


def test_a_repository_is_moved_to_its_key(world: World, key: str, name: str) -> None:
    world.done("repositories", "create", name)
    world.push(name, "v1")
    world.done("encryption", "set", key, "--repository", name)
    assert world.read("keys", "usage", key)["blob_count"] == 0
    ended = world.done("encryption", "rewrap", name, "--wait").lines
    moved = world.read("keys", "usage", key)["blob_count"]
    assert moved > 0
    assert ended[-1].endswith(f"{moved} of {moved} blobs have the new key"), ended
    (run,) = world.read("encryption", "rewraps", name)
    assert (run["status"], run["moved"], run["total"]) == ("succeeded", moved, moved)
    assert world.done("encryption", "rewraps", name, "--quiet").lines == [run["id"]]


def test_what_a_rewrap_leaves_is_told(world: World, key: str, name: str) -> None:
    world.done("repositories", "create", name, "--kms-key", key)
    world.push(name, "v1")
    world.done("keys", "disable", key)
    world.done("encryption", "set", "platform", "--repository", name)
    lines = world.done("encryption", "rewrap", name, "--wait").lines
    assert re.search(r"0 of (\d+) blobs have the new key", lines[-2]), lines
    assert lines[-1].endswith("have a key that is disabled, or whose deletion is pending"), lines
    assert world.done("encryption", "rewrap", name).lines[0].startswith("Started run ")


def test_a_rewrap_that_cannot_start_is_refused(world: World, key: str, name: str) -> None:
    assert world.told("encryption", "rewrap", name)[0] == 3
    world.done("repositories", "create", name, "--kms-key", key)
    world.done("keys", "disable", key)
    status, told = world.told("encryption", "rewrap", name)
    assert (status, "enable it first" in told) == (1, True)
    world.done("keys", "delete", key, "--yes")
    assert "cancel that and enable it first" in world.told("encryption", "rewrap", name)[1]
    assert world.read("encryption", "rewraps", name) == []

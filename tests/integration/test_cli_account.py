"""Documents of an account as commands take and show them: policies and lifecycle rules."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.integration.cli_world import JSON, World, cli_world

PULL = {"sid": "pull", "effect": "allow", "actions": ["registry:PullImage"]}
RULES = {
    "rules": [
        {"priority": 1, "action": "keep", "selector": "tagged", "tag_prefixes": ["v"]},
        {"priority": 2, "selector": "any", "keep_last": 1, "description": "the newest"},
        {"priority": 3, "action": "keep", "selector": "any", "keep_last": 1},
    ]
}


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


@pytest.mark.parametrize(
    ("noun", "document"),
    [
        ("policies", {"version": "1", "statements": [{**PULL, "resources": ["*"]}]}),
        ("repository-policies", {"version": "1", "statements": [{**PULL, "principals": ["*"]}]}),
        ("lifecycle", RULES),
    ],
)
def test_what_was_shown_can_be_set_again(
    world: World, app: str, tmp_path: Path, noun: str, document: dict[str, Any]
) -> None:
    first, again = ("create", "update") if noun == "policies" else ("set", "set")
    before = world.done(noun, first, app, "-", *JSON, stdin=json.dumps(document)).document
    file = tmp_path / "shown.json"
    file.write_bytes(world.done(noun, "show", app, *JSON).out)
    after = world.read(noun, again, app, str(file))
    assert after["revision"] == before["revision"] + (noun != "policies")


def test_what_is_old_enough_is_previewed_and_expires(world: World, app: str) -> None:
    kept, gone, last = (world.push(app, tag) for tag in ("v1", "w1", "w2"))
    new = world.push(app)
    size = world.read("images", "show", f"{app}:w1")["size_bytes"]
    with sqlite3.connect(world.install.registry.data / "metadata.db", timeout=30) as database:
        database.execute("UPDATE manifests SET pushed_at = pushed_at - 172800000000")
    database.close()
    world.done("lifecycle", "set", app, "-", stdin=json.dumps(RULES))
    _, row, summary, _ = world.done("lifecycle", "preview", app).lines
    assert row.startswith(f"2 {gone.removeprefix('sha256:')[:12]} w1 {size} B 20")
    assert summary == (
        f"1 of 4 images would expire (rule 2: 1), which frees {size} B "
        "once they can no longer be restored; kept: rule 1: 1, rule 2: 1, rule 3: 1"
    )
    assert world.done("lifecycle", "run", app, "--wait").text == (
        f"Succeeded: expired 1 of 4 images, which frees {size} B "
        "once they can no longer be restored\n"
    )
    assert [each["digest"] for each in world.read("images", "list", app, "-a")] == [new, last, kept]
    (run,) = world.read("lifecycle", "runs", app)
    (deleted,) = world.read("images", "deleted", app)
    assert deleted["deleted_by"].endswith(f":lifecycle-run/{run['id']}")

"""``entrepot buckets`` against a served registry: files go in and come back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli_world import World, cli_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with cli_world(tmp_path_factory.mktemp("world")) as made:
        yield made


def test_files_are_put_listed_got_and_removed(world: World, tmp_path: Path) -> None:
    made = world.done("buckets", "create", "photos", "--tag", "team=web")
    assert made.text == (
        "Created photos; 'entrepot buckets put photos KEY FILE' stores a file in it\n"
    )
    cat, back = tmp_path / "cat.jpg", tmp_path / "back.jpg"
    cat.write_bytes(bytes(range(256)) * 10_000)
    key = "2026//a b/../cat.jpg"
    put = world.done("buckets", "put", "photos", key, str(cat))
    assert put.text == f"Stored {key}, 2560000 bytes\n"
    shown = world.read("buckets", "put", "photos", key, str(cat))
    assert (shown["content_type"], shown["size"]) == ("image/jpeg", 2_560_000)
    assert world.done("buckets", "get", "photos", key, str(back)).text == (
        f"Wrote {back}, 2560000 bytes\n"
    )
    assert back.read_bytes() == cat.read_bytes()
    assert sorted(tmp_path.iterdir()) == [back, cat], "nothing unfinished is left"
    world.run("buckets", "put", "photos", "note", "-", stdin="a note")
    assert world.done("buckets", "get", "photos", "note", "-").out == b"a note"
    head, *rows = world.done("buckets", "objects", "photos").lines
    assert head == "KEY SIZE MODIFIED ETAG"
    assert [row.partition(" 2")[0] for row in rows[1:]] == ["note 6 B"]
    found = world.read("buckets", "objects", "photos", "--prefix", "20")
    assert [each["key"] for each in found] == [key]
    assert world.done("buckets", "list").lines[1].startswith("photos 2 2.6 MB")
    status, words = world.told("buckets", "get", "photos", "absent", str(back))
    assert (status, words.partition(" (")[0]) == (3, "NOT_FOUND: there is no such object")
    assert back.read_bytes() == cat.read_bytes(), "the file is as it was"
    status, words = world.told("buckets", "delete", "photos", "--yes")
    assert status == 1
    assert "it has objects" in words or "has objects" in words
    removed = world.done("buckets", "remove", "photos", "note", key)
    assert removed.text == f"Deleted note\nDeleted {key}\n"
    assert world.done("buckets", "delete", "photos", "--yes").text == "Deleted photos\n"


def test_cors_rules_are_set_shown_and_reset(world: World, tmp_path: Path) -> None:
    world.done("buckets", "create", "site")
    file = tmp_path / "rules.json"
    rule = {"allowed_origins": ["https://app.example.com"], "allowed_methods": ["GET"]}
    file.write_text(json.dumps({"cors_rules": [rule]}))
    assert world.done("buckets", "set-cors", "site", "--rules", str(file)).text == (
        "Set the CORS rules\n"
    )
    (shown,) = world.read("buckets", "cors", "site")["cors_rules"]
    assert shown["allowed_origins"] == ["https://app.example.com"]
    assert world.done("buckets", "reset-cors", "site").text == "Reset the CORS rules of site\n"
    assert world.told("buckets", "cors", "site")[0] == 3

"""``entrepot buckets`` against a served registry: files go in and come back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

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


def test_a_file_takes_the_place_of_a_plain_file_alone(world: World, tmp_path: Path) -> None:
    world.done("buckets", "create", "to-files")
    world.run("buckets", "put", "to-files", "note", "-", stdin="a note")
    pipe, link, file = tmp_path / "pipe", tmp_path / "link", tmp_path / "file"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        world.done("buckets", "get", "to-files", "note", str(pipe))
        assert (os.read(reading, 100), pipe.is_fifo()) == (b"a note", True)
    finally:
        os.close(reading)
    link.symlink_to(file)
    (tmp_path / "link.part").write_text("of somebody else")
    world.done("buckets", "get", "to-files", "note", str(link))
    assert (link.is_symlink(), file.read_text()) == (True, "a note")
    assert (tmp_path / "link.part").read_text() == "of somebody else"
    for name in ("", ".", str(tmp_path)):
        assert world.told("buckets", "get", "to-files", "note", name) == (
            2,
            f"{name!r} is a folder; name a file in it",
        )
    assert len(list(tmp_path.iterdir())) == 4, "nothing unfinished is left"


def test_what_tells_no_size_is_put_whole(world: World, tmp_path: Path) -> None:
    world.done("buckets", "create", "streams")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writing = Thread(target=pipe.write_bytes, args=(b"a note",))
    writing.start()
    put = world.done("buckets", "put", "streams", "note", str(pipe))
    writing.join()
    assert put.text == "Stored note, 6 bytes\n"
    kernel = Path("/proc/version").read_bytes()
    world.done("buckets", "put", "streams", "kernel", "/proc/version")
    assert world.done("buckets", "get", "streams", "kernel", "-").out == kernel


def test_a_key_and_a_content_type_that_cannot_be_sent_are_refused(world: World) -> None:
    for key in ("", "\udcff", "k" * 1025):
        for verb in ("put", "get"):
            told = world.told("buckets", verb, "absent", key, "file")
            assert told == (2, "key: 1 to 1024 bytes of UTF-8")
    told = world.told("buckets", "put", "absent", "k", "-", "--content-type", "a/b\r\nX: y")
    assert told == (2, r"a content type is like text/plain, not 'a/b\r\nX: y'")

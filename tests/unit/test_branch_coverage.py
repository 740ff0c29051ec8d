"""What is noted of the branches that a source takes, and how it is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.branch_coverage import NOTES, Branch, rooms, untaken, with_notes

SOURCE = b"""\
def run(given):
    found = []
    for each in given:
        if each == "stop":
            break
        elif each:
            found.append(each)
    while found and found[-1] == "last":
        found.pop()
    match found:
        case []:
            return "none"
        case [one]:
            return one
    while True:
        return "many"
"""
ALL = {
    (3, "entered"),
    (3, "ended"),
    (4, "true"),
    (4, "false"),
    (6, "true"),
    (6, "false"),
    (8, "entered"),
    (8, "ended"),
    (11, "case"),
    (13, "case"),
    (10, "none"),
}


@pytest.mark.parametrize(
    ("given", "result", "taken"),
    [
        ([], "none", {(3, "ended"), (8, "ended"), (11, "case")}),
        (["stop"], "none", {(3, "entered"), (4, "true"), (8, "ended"), (11, "case")}),
        (
            ["one", "", "last"],
            "one",
            {
                *((3, "entered"), (3, "ended"), (4, "false"), (6, "true"), (6, "false")),
                *((8, "entered"), (8, "ended"), (13, "case")),
            },
        ),
        (
            ["one", "two"],
            "many",
            {
                *((3, "entered"), (3, "ended"), (4, "false"), (6, "true")),
                *((8, "ended"), (10, "none")),
            },
        ),
    ],
)
def test_a_source_notes_the_branches_that_it_takes(
    given: list[str], result: str, taken: set[tuple[int, str]]
) -> None:
    branches: list[Branch] = []
    notes: dict[int, int] = {}
    names: dict[str, Any] = {NOTES: notes}
    exec(compile(with_notes(SOURCE, "any.py", branches), "any.py", "exec"), names)
    assert {(each.line, each.way) for each in branches} == ALL
    assert names["run"](given) == result
    assert {(branches[place].line, branches[place].way) for place in notes} == taken


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = ("src/a/one/b.py", "src/a/one/b.py", "src/a/one/deep/c.py", "src/a/d.py")
    branches = [Branch(file, line, "true") for line, file in enumerate(files, 1)]
    (tmp_path / "branches").write_text(json.dumps(branches))
    return tmp_path


def test_rooms_have_the_branches_of_all_files_below_them(folder: Path) -> None:
    (folder / "notes").write_bytes(bytes((1, 0, 1, 0)))
    words = " ".join(rooms(folder)).split()
    assert " ".join(words) == "a 0 of 1 0.0 % all 2 of 4 50.0 % a/one 2 of 3 66.7 %"
    assert list(untaken(folder, "src/a/one")) == ["src/a/one/b.py:2 true"]


def test_a_run_of_which_nothing_was_noted_is_none(folder: Path) -> None:
    (folder / "notes").write_bytes(bytes(4))
    with pytest.raises(AssertionError, match="other sources"):
        list(rooms(folder))

"""Tables and JSON of the command."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from cloudcore.commands.nouns import Cell
from cloudcore.commands.records import printable, text_of, time_text, write_record, write_records

ROWS: list[dict[str, Any]] = [
    {"name": "api", "size": 1_234_567, "tags": ["1.0", "latest"], "extra": None},
    {"name": "図書館", "size": 7, "tags": [], "extra": {"a": 1}},
]
COLUMNS = ("name", Cell("SIZE", "size", "size"), "tags")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def written(rows: list[dict[str, Any]], form: str, out: io.StringIO | None = None) -> str:
    out = out or io.StringIO()
    write_records(iter(rows), COLUMNS, form, out)
    return out.getvalue()


def test_a_table_is_aligned_and_ends_no_line_in_blanks() -> None:
    assert written(ROWS, "table") == (
        "NAME      SIZE  TAGS\napi     1.2 MB  1.0, latest\n図書館     7 B  -\n"
    )
    assert written([], "table") == "NAME  SIZE  TAGS\n"


def test_a_list_names_what_a_record_refers_to_and_one_record_tells_all_of_it() -> None:
    front = {"id": "7", "crn": "crn:network:local:1:subnet/front", "name": "front"}
    columns = ("subnet", "groups")
    rows: list[dict[str, Any]] = [
        {"subnet": front, "groups": [front, {**front, "name": "back"}]},
        {"subnet": {"id": "7"}},
    ]
    out = io.StringIO()
    write_records(iter(rows), columns, "table", out)
    assert out.getvalue() == "SUBNET  GROUPS\nfront   front, back\nid=7    -\n"
    out = io.StringIO()
    write_record({"subnet": front}, "table", out)
    assert "crn=crn:network:local:1:subnet/front, name=front" in out.getvalue()


def test_a_table_in_a_file_folds_nothing() -> None:
    long = "x" * 500
    (line,) = written([{"name": long, "size": 1, "tags": []}], "table").splitlines()[1:]
    assert line.startswith(long)


def test_a_table_on_a_terminal_fits_it_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    row = {"name": "x" * 50, "size": 1, "tags": []}
    shown = re.sub("\x1b[^m]*m", "", written([row], "table", Terminal()))
    assert all(len(line) <= 40 for line in shown.splitlines())
    assert shown.count("x") == 50


@pytest.mark.parametrize("width", ["1", "20", "30"])
def test_a_terminal_too_narrow_for_words_folds_for_itself(
    width: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    row = {"name": "a-name-of-26-characters-xyz", "size": 1, "tags": ["1.0"]}
    assert written([row], "table", Terminal()).splitlines()[1:] == [f"{row['name']}   1 B  1.0"]


@pytest.mark.parametrize(("no_color", "term"), [("1", "xterm"), ("", "dumb")])
def test_headings_are_plain_where_a_person_wants_them_so(
    no_color: str, term: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", term)
    assert written(ROWS[:1], "table", Terminal()).startswith("NAME    SIZE  TAGS\n")
    monkeypatch.setenv("NO_COLOR", "")
    monkeypatch.setenv("TERM", "xterm")
    assert written(ROWS[:1], "table", Terminal()).startswith("\x1b[1mNAME")


def test_a_table_flows_as_it_comes() -> None:
    out = io.StringIO()

    def rows() -> Iterator[dict[str, Any]]:
        for number in range(5000):
            yield {"name": f"n{number}", "size": number, "tags": []}
            assert number - out.getvalue().count("\n") <= 1000
        yield {"name": "x" * 40, "size": 1, "tags": []}

    write_records(rows(), COLUMNS, "table", out)
    lines = out.getvalue().splitlines()
    assert len(lines) == 5002
    assert lines[-1].split() == ["x" * 40, "1", "B", "-"]


def test_nothing_in_a_table_steers_the_terminal_or_is_markup() -> None:
    row = {"name": "\x1b[31m[red]a\nb\x9b\u202e", "size": 0, "tags": ["\x07"]}
    shown = written([row], "table")
    assert shown.splitlines()[1].split() == ["\\x1b[31m[red]a\\nb\\x9b\\u202e", "0", "B", "\\x07"]


def test_documents_have_every_field_and_lines_of_json_a_record_each() -> None:
    for rows in (ROWS, ROWS[:1], []):
        assert json.loads(written(rows, "json")) == rows
        assert [json.loads(line) for line in written(rows, "jsonl").splitlines()] == rows
        assert msgspec.yaml.decode(written(rows, "yaml")) == rows


def test_yaml_keeps_texts_that_look_like_something_else() -> None:
    row = {"a": "1.0", "b": "yes", "c": "2026-01-02T03:04:05Z", "d": "x: y\nz", "e": "null"}
    assert msgspec.yaml.decode(written([row], "yaml")) == [row]


@pytest.mark.parametrize("form", ["json", "jsonl", "yaml"])
def test_documents_flow_as_they_come(form: str) -> None:
    out = io.StringIO()

    def rows() -> Iterator[dict[str, Any]]:
        yield ROWS[0]
        assert "api" in out.getvalue()
        yield ROWS[1]

    write_records(rows(), COLUMNS, form, out)
    assert out.getvalue().count("latest") == 1


def test_one_record_has_a_line_a_field() -> None:
    out = io.StringIO()
    write_record({"name": "api", "tag_count": 3, "shared": False}, "table", out)
    assert out.getvalue() == (
        "FIELD      VALUE\n"
        "name       api\n"
        "tag_count  3\n"
        "shared     no\n"
    )  # fmt: skip
    for form, read in (("json", json.loads), ("jsonl", json.loads), ("yaml", msgspec.yaml.decode)):
        out = io.StringIO()
        write_record(ROWS[0], form, out)
        assert read(out.getvalue()) == ROWS[0]
        assert form != "jsonl" or out.getvalue().count("\n") == 1


def test_cells() -> None:
    assert text_of(None) == text_of([]) == text_of({}) == text_of("") == "-"
    assert text_of({"a": [1, True]}) == "a=1, yes"
    assert text_of({"a": {"b": {"from": 1, "to": {}}}}) == "a={b={from=1, to=-}}"
    assert text_of(0) == "0"
    assert time_text("2026-01-02T03:04:05.678901Z") == "2026-01-02 03:04:05Z"
    assert printable("é 図 🎉") == "é 図 🎉"

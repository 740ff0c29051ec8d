"""``entrepot audit``: the times it takes, and JSON lines that flow."""

from __future__ import annotations

import json
from argparse import Namespace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cloudcore.command_failures import Misuse, RequestRefused
from cloudcore.commands.records import by_column
from registry.cli import main as command_line
from registry.cli.client.api import ApiClient
from registry.cli.commands.audit import parse_moment

pytestmark = pytest.mark.usefixtures("one_parser")
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, None),
        ("90m", "2026-03-01T10:30:00+00:00"),
        ("24h", "2026-02-28T12:00:00+00:00"),
        ("7d", "2026-02-22T12:00:00+00:00"),
        ("2026-01-31", "2026-01-31T00:00:00+00:00"),
        ("2026-01-31T08:00:00Z", "2026-01-31T08:00:00+00:00"),
        ("2026-01-31T08:00:00+02:00", "2026-01-31T08:00:00+02:00"),
    ],
)
def test_a_time_is_absolute_or_so_long_ago(text: str | None, told: str | None) -> None:
    assert parse_moment(text, NOW) == told


@pytest.mark.parametrize("text", ["", "yesterday", "5", "1y", "-3d", "2026-13-01"])
def test_another_text_is_no_time(text: str) -> None:
    with pytest.raises(Misuse):
        parse_moment(text, NOW)


def parsed(*words: str) -> Namespace:
    """Return the options of a command that needs no sign-in."""
    options = command_line.make_parser().parse_args(words)
    signed_in = SimpleNamespace(client=lambda *, in_role: object.__new__(ApiClient))
    options.product = options.product._replace(sign_in=lambda _: signed_in)
    return options


@pytest.mark.parametrize(
    "words", [("list", "--limit", "0", "-o", "jsonl"), ("export", "-o", "jsonl"), ("export",)]
)
def test_json_lines_are_written_page_by_page(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """When a page is asked for, all of those before it are written: none is kept."""
    written: list[int] = []

    def call(_client: ApiClient, *_: object) -> dict[str, Any]:
        lines = capsys.readouterr().out.splitlines()
        written.extend(json.loads(line)["number"] for line in lines)
        begun = len(written)
        more = {"marker": "next"} if begun < 4 else {}
        return {"events": [{"number": begun}, {"number": begun + 1}], "meta": more}

    monkeypatch.setattr(ApiClient, "call", call)
    options = parsed("audit", *words)
    assert options.run(options) == 0
    assert written == [0, 1, 2, 3]
    assert [json.loads(line)["number"] for line in capsys.readouterr().out.splitlines()] == [4, 5]


def test_an_export_that_is_refused_makes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_client: ApiClient, *_: object) -> dict[str, Any]:
        raise RequestRefused("ACCESS_DENIED: no", 403)

    monkeypatch.setattr(ApiClient, "call", refuse)
    file = tmp_path / "events"
    options = parsed("audit", "export", "--to", str(file))
    with pytest.raises(RequestRefused):
        options.run(options)
    assert not file.exists()
    monkeypatch.setattr(ApiClient, "call", lambda *_: {"events": [], "meta": {}})
    assert options.run(options) == 0
    assert file.read_text() == ""


@pytest.mark.parametrize(
    ("crn", "session", "told"),
    [
        ("crn:iam::o:user/1", None, "ann@example.org"),
        ("crn:iam::a:role/dev", "ann@example.org", "ann@example.org (crn:iam::a:role/dev)"),
        ("crn:iam::a:service-account/ci", None, "ann@example.org (service account)"),
    ],
)
def test_who_acted_is_told_by_name(crn: str, session: str | None, told: str) -> None:
    cell = by_column("principal", "source").shown
    assert cell is not None
    source = {"crn": crn, "name": "ann@example.org", "session_name": session}
    assert cell({"principal": crn, "source": source}) == told
    assert cell({"principal": crn, "source": None}) == crn

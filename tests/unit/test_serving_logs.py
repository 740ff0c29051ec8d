"""Log lines: JSON, one a record, nothing secret, nothing that breaks a line."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import pytest

from cloudcore.serving.logs import AccessLog, JsonFormatter, configure_logging, loggable_query
from cloudcore.serving.planes import PLAIN
from cloudcore.serving.request_record import RequestRecord
from registry.composition.planes import PLANES
from tests.kept_logs import kept_logs


def record(**changes: object) -> RequestRecord:
    """Return a record with some fields changed."""
    base = RequestRecord(
        1_790_000_000.5, 0.0123456, "id", "GET", b"/v2/", b"", 200, 1, 2, "127.0.0.1", 0
    )
    return base._replace(**changes)  # type: ignore[arg-type]


def written(path: Path, *records: RequestRecord) -> list[bytes]:
    """Return the lines the access log writes for `records`."""
    with path.open("w+b") as file:
        log = AccessLog(PLANES, file.fileno())
        log.start()
        for each in records:
            log(each)
        log.close()
        file.seek(0)
        return file.read().splitlines()


def test_a_line_says_who_asked_what_and_how_it_went(tmp_path: Path) -> None:
    (line,) = written(tmp_path / "log", record(path=b"/v2/a/b", query=b"n=1&secret=2"))
    assert json.loads(line) == {
        "time": "2026-09-21T14:13:20.500+00:00",
        "level": "info",
        "logger": "access",
        "request_id": "id",
        "method": "GET",
        "path": "/v2/a/b",
        "query": "n=1",
        "status": 200,
        "bytes_sent": 2,
        "bytes_received": 1,
        "duration_ms": 12.346,
        "client": "127.0.0.1",
        "scheme": "http",
        "principal": "",
        "user_agent": "",
    }


def test_a_line_names_the_caller_its_program_and_why_it_was_cut(tmp_path: Path) -> None:
    crn = "crn:service:identity:global:123:service-account/ci"
    named = record(principal=crn, user_agent=b"docker/28.2", reason="no byte came", status=408)
    (line,) = written(tmp_path / "log", named)
    told = json.loads(line)
    assert (told["principal"], told["user_agent"]) == (crn, "docker/28.2")
    assert (told["status"], told["reason"]) == (408, "no byte came")


def test_a_line_names_the_person_and_the_session_behind_a_role(tmp_path: Path) -> None:
    source = ("crn:iam::1:user/2", "ann@example.com", "deploy")
    (line,) = written(tmp_path / "log", record(principal="crn:iam::1:role/ops", source=source))
    told = json.loads(line)
    assert (told["source"], told["session_name"]) == ("ann@example.com", "deploy")
    (line,) = written(tmp_path / "log", record())
    assert not {"source", "session_name"} & json.loads(line).keys()


def test_foreign_text_cannot_steer_a_terminal(tmp_path: Path) -> None:
    nasty = bytes(range(0x20)) + bytes(range(0x7F, 0x100))
    (line,) = written(
        tmp_path / "log", record(user_agent=nasty, path=b"/" + nasty, query=b"n=" + nasty)
    )
    assert all(0x20 <= byte < 0x7F for byte in line)
    assert json.loads(line)["user_agent"].startswith("\0\1\2")


def test_a_user_agent_is_bounded(tmp_path: Path) -> None:
    (line,) = written(tmp_path / "log", record(user_agent=b"\xff" * 256))
    assert len(json.loads(line)["user_agent"]) == 256


def test_every_record_is_one_line_whatever_it_holds(tmp_path: Path) -> None:
    nasty = record(path=bytes(range(256)) * 100, method="A\nB\x1b[31m")
    lines = written(tmp_path / "log", *[nasty] * 300)
    assert len(lines) == 300
    for line in lines:
        assert len(json.loads(line)["path"]) == 1024
        assert not any(byte < 0x20 for byte in line)


@pytest.mark.parametrize(
    ("query", "logged"),
    [
        (b"", ""),
        (b"n=1&last=x", "n=1&last=x"),
        (b"token=abc", ""),
        (b"token", ""),
        (b"digest=sha256%3Aab&_state=xyz&tag=t", "digest=sha256%3Aab&tag=t"),
        (b"mount=m&from=f", "mount=m&from=f"),
        (b"N=1&n%20=2&nn=3", ""),
        (b"last=" + b"a" * 1000, "last=" + "a" * 507),
    ],
)  # fmt: skip
def test_only_harmless_parameters_are_logged(query: bytes, logged: str) -> None:
    for plane in PLANES.planes:
        assert loggable_query(query, plane.logged_parameters) == logged


def test_a_plane_that_names_no_parameters_logs_none(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+b") as file:
        log = AccessLog(PLAIN, file.fileno())
        log.start()
        log(record(query=b"n=1"))
        log.close()
        file.seek(0)
        assert json.loads(file.read())["query"] == ""


def test_a_traceback_is_a_field() -> None:
    try:
        int("line one\nline two")
    except ValueError:
        made = logging.LogRecord("x", logging.ERROR, "", 1, "a %s", ("b",), sys.exc_info())
    made.request_id = "id"
    text = JsonFormatter().format(made)
    line = json.loads(text)
    assert "\n" not in text
    assert (line["level"], line["logger"], line["message"]) == ("error", "x", "a b")
    assert line["request_id"] == "id"
    assert line["error"].startswith("Traceback (most recent call last):\n")
    assert "ValueError" in line["error"]


def test_a_command_in_a_test_does_not_change_the_logs_of_the_next() -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    with kept_logs():
        configure_logging("DEBUG")
        assert (root.level, root.handlers) != before
    assert (root.level, root.handlers) == before

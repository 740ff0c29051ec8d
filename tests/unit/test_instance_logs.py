"""``entrepot instances logs``: bytes for programs, and nothing that drives a terminal."""

from __future__ import annotations

import sys
from io import BytesIO, TextIOWrapper
from types import SimpleNamespace
from typing import Any, BinaryIO, Final

import pytest

from cloudcore.compute.commands import INSTANCES

OUTPUT: Final = (
    b"one\ttwo\r\n\x1b]0;title\x07 \x1b[2J\x9b31m caf\xc3\xa9 \xff \xe2\x80\xaebad\rover\n"
    + b"x" * 65_530
    + "é".encode() * 10
)


class Client:
    def receive_file(self, path: str, file: BinaryIO) -> None:
        assert path == "/v1/instances/i/logs?tail=9"
        file.write(OUTPUT)


def write_logs() -> None:
    run: Any = SimpleNamespace(path="/v1/instances/i", values={"tail": 9}, client=Client())
    (logs,) = (each for each in INSTANCES.commands if each.verb == "logs")
    assert logs.run is not None
    logs.run(run)


def test_a_pipe_gets_the_bytes_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    got = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(got, "utf-8"))
    write_logs()
    assert got.getvalue() == OUTPUT


class Terminal(TextIOWrapper):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_no_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    got = BytesIO()
    monkeypatch.setattr(sys, "stdout", Terminal(got, "utf-8"))
    write_logs()
    head, _, tail = got.getvalue().decode().partition("x" * 20)
    assert head == "one\ttwo\n\\x1b]0;title\\x07 \\x1b[2J\\x9b31m café \\xff \\u202ebad\nover\n"
    assert tail == "x" * 65_510 + "é" * 10

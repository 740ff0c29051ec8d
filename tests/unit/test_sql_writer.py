"""The SQL that a child process writes: who may ask for it, and how long it may take."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence

import pytest
from sqlalchemy import select, text

from cloudcore.db import sql_writer, statement
from cloudcore.db.sql_writer import SqlWriter
from cloudcore.db.statement import Statement, let_write

ASKED = Statement(select(text("1")))


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> SqlWriter:
    """Return a writer whose child neither answers nor ends by itself."""
    command = (sys.executable, "-c", "import signal; signal.pause()")
    monkeypatch.setattr(sql_writer, "_COMMAND", command)
    monkeypatch.setattr(sql_writer, "LIMIT_SECONDS", 0.2)
    return SqlWriter()


def test_a_child_that_hangs_does_not_hang_its_parent(hanging: SqlWriter) -> None:
    with pytest.raises(RuntimeError, match="has ended"):
        hanging.write("sqlite", ())
    hanging.close()


def test_a_child_that_hangs_is_not_waited_for_at_the_end(hanging: SqlWriter) -> None:
    hanging.close()


class OneByOne:
    """A writer that sees whether two threads ask it at once."""

    def __init__(self) -> None:
        self.is_asked = threading.Event()
        self.is_asked_by_two = threading.Event()
        self._answers = 0

    def write(self, dialect: str, modules: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Answer; the first time once another thread asks too, or has had the time to."""
        if not self.is_asked.is_set():
            self.is_asked.set()
            self.is_asked_by_two.wait(0.2)
        elif not self._answers:
            self.is_asked_by_two.set()
        self._answers += 1
        return {module: [dialect] * statement._MADE[module] for module in modules}

    def close(self) -> None:
        """Do nothing."""


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> Iterator[OneByOne]:
    monkeypatch.setattr(statement, "_ALL", {ASKED})
    monkeypatch.setattr(statement, "_writers", [])
    writer = OneByOne()
    let_write(writer)
    yield writer
    vars(ASKED).pop("sqlite", None)
    vars(ASKED).pop("postgresql", None)


def test_threads_ask_one_after_the_other(one_by_one: OneByOne) -> None:
    """The texts for both databases: those of one are kept by a property, which may take a lock."""
    found: list[str] = []
    first = threading.Thread(target=lambda: found.append(ASKED.sqlite))
    first.start()
    assert one_by_one.is_asked.wait(60)
    found.append(ASKED.postgresql)
    first.join()
    assert not one_by_one.is_asked_by_two.is_set()
    assert sorted(found) == ["postgresql", "sqlite"]

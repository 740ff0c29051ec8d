"""A server that keeps SQLAlchemy out has the statements and the data that any process has."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, Final

import msgspec
import pytest

from tests.databases import program_environment

_DUMP: Final = """
import sys, importlib
from pathlib import Path

import msgspec

if sys.argv[1] == "lean":
    from registry.cli.lean_start import start_lean
    start_lean("sqlite:///")
import registry.served
for family in registry.served.FAMILIES:
    family.routes()
    family.expiry()
from cloudcore.db import statement

modules = sorted({each.module for each in statement._ALL})
modules = [name for name in modules if name != "__main__"]

def is_plain(value):
    if isinstance(value, (tuple, list, set, frozenset)):
        return all(map(is_plain, value))
    if isinstance(value, dict):
        return all(map(is_plain, value)) and all(map(is_plain, value.values()))
    return isinstance(value, (str, bytes, int, float, type(None)))

def shown(value):
    return repr(sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value)

def plain(name):
    found = vars(sys.modules[name]).items()
    return {key: shown(each) for key, each in found if not key.startswith("__") and is_plain(each)}

texts = {
    dialect: {name: statement.texts_of(name, dialect) for name in modules}
    for dialect in ("sqlite", "postgresql")
}
plain = {name: plain(name) for name in modules}
loaded = "sqlalchemy.sql.elements" in sys.modules
sys.stdout.buffer.write(msgspec.json.encode([loaded, texts, plain]))
"""


def _dumped(how: str) -> Any:  # noqa: ANN401 - JSON
    found = subprocess.run(
        [sys.executable, "-c", _DUMP, how],
        env=program_environment(),
        capture_output=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr.decode()
    return msgspec.json.decode(found.stdout)


def test_without_sqlalchemy_all_statements_and_all_plain_values_are_the_same() -> None:
    absent, texts, values = _dumped("lean")
    present, compiled, true_values = _dumped("full")
    assert present
    assert not absent
    assert sum(map(len, texts["sqlite"].values())) > 500
    assert texts == compiled
    assert values == true_values


_LATE: Final = """
from registry.cli.lean_start import start_lean
start_lean("sqlite:///")
from sqlalchemy import select, text
from cloudcore.db.statement import Statement

def late():
    return Statement(select(text("1")))

{act}
"""


@pytest.mark.parametrize(
    ("act", "error"),
    [
        ("late().sqlite", "__main__ does not make the same statements each time"),
        ("import alembic", "alembic needs SQLAlchemy, which is kept out of this process"),
        ("bool(text('x'))", "SQLAlchemy is kept out of this process"),
        ("f'{text(1)}'", "SQLAlchemy is kept out of this process"),
    ],
)
def test_what_needs_sqlalchemy_fails_where_it_is_kept_out(act: str, error: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", _LATE.format(act=act)],
        env=program_environment(),
        capture_output=True,
        check=False,
        text=True,
    )
    assert found.returncode == 1
    assert error in found.stderr

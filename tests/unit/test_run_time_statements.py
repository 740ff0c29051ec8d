"""Servers run without SQLAlchemy: what runs in a transaction has statements, and asks no table."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).parents[2] / "src"
OF_TABLES: Final = {"table", "c", "columns"}


def asked(text: str) -> list[str]:
    """Return what functions that have a connection ask of tables."""
    return [
        ast.unparse(each)
        for function in ast.walk(ast.parse(text))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and {"tx", "connection"} & {argument.arg for argument in function.args.args}
        for each in ast.walk(function)
        if isinstance(each, ast.Attribute) and each.attr in OF_TABLES
    ]


def test_what_runs_in_a_transaction_asks_no_table() -> None:
    paths = [path for path in SOURCE.rglob("*.py") if "migrations" not in path.parts]
    found = {str(path.relative_to(SOURCE)): asked(path.read_text()) for path in paths}
    assert {path: each for path, each in found.items() if each} == {}


def test_such_a_question_is_found() -> None:
    assert "TOPICS.table" in asked("def find(tx, name):\n    return len(TOPICS.table.c)\n")
    assert asked("ROWS = TOPICS.table.c\n") == []

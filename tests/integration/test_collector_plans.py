"""What the collector asks for by name costs what it names, and not what the account holds."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Final

import pytest

from cloudcore.db.statement import Statement
from registry.metadata.blobs import wraps
from registry.metadata.collector import collection, erasure

BY_NAME: Final = {
    name: value
    for module in (wraps, erasure, collection)
    for name, value in vars(module).items()
    if isinstance(value, Statement)
    and (":ids" in value.sqlite or ":digests" in value.sqlite or ":limit" in value.sqlite)
}


class _Anything(dict[str, str]):
    """Has a value for every parameter."""

    def __missing__(self, key: str) -> str:
        return "[]"


def test_the_statements_are_found() -> None:
    assert {
        "_SWEEP",
        "_DROP",
        "_ERASE",
        "_UNLINKED_EDGES",
        "_BEGIN_REMOVAL",
        "_FINISH_REMOVAL",
    } <= BY_NAME.keys()


@pytest.mark.parametrize("name", BY_NAME)
def test_no_statement_reads_all_of_an_account(sqlite_database: str, name: str) -> None:
    """An index that the account alone leads into reads all its rows (`test_statements` scans)."""
    with closing(sqlite3.connect(sqlite_database.removeprefix("sqlite:///"))) as connection:
        text = f"EXPLAIN QUERY PLAN {BY_NAME[name].sqlite}"
        plan = [row[3] for row in connection.execute(text, _Anything())]
    assert not [detail for detail in plan if detail.endswith("(account_id=?)")], plan

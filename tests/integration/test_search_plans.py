"""A search among many names reads a range of the index on both databases."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Final

import psycopg
import pytest
from sqlalchemy import bindparam, text

from cloudcore.db.base import Connection, Row
from cloudcore.db.statement import Statement
from registry.metadata.repositories import search_index
from registry.services.repositories.search import search_names
from tests.databases import add_account, opened

STATEMENTS: Final = {
    name: getattr(search_index, name) for name in ("_LIST", "_LIST_UNSETTLED", "_TAKE")
}
NUMBERS: Final = Statement(
    text(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)"
        " INSERT INTO search_names (id, account_id, repository_id, kind, name, state)"
        " SELECT i, :account_id, 'r', 'tag', 'v' || i, 'indexed' FROM n"
    ).bindparams(bindparam("account_id"))
)
TERMS: Final = Statement(
    text(
        "INSERT INTO search_terms (term, name_id)"
        " SELECT substr(account_id, 25) || 't' || name, id FROM search_names"
    )
)
VALUES: Final = {
    "account_id": "a",
    "after": "at1",
    "after_id": 0,
    "last": "at1\x7f",
    "limit": 200,
}


def add_many(tx: Connection, account_id: str) -> None:
    """Index the first places of 5,000 tags."""
    tx.execute(NUMBERS, account_id=account_id)
    tx.execute(TERMS)


async def test_no_statement_scans_on_sqlite(sqlite_database: str) -> None:
    async with opened(sqlite_database) as database:
        await database.write(add_many, await database.write(add_account, "acme"))
    with closing(sqlite3.connect(sqlite_database.removeprefix("sqlite:///"))) as raw:
        plans = {
            name: [row[3] for row in raw.execute(f"EXPLAIN QUERY PLAN {each.sqlite}", VALUES)]
            for name, each in STATEMENTS.items()
        }
    terms = "SEARCH search_terms USING PRIMARY KEY ((term,name_id)>(?,?) AND term<?)"
    assert terms in plans["_LIST"], plans
    unsettled = "SEARCH search_names USING INDEX ix_search_names_unsettled (account_id=?)"
    assert unsettled in plans["_LIST_UNSETTLED"], plans
    assert "INDEX ix_search_names_unsettled (account_id>?)" in plans["_TAKE"][0], plans


@pytest.mark.postgresql
async def test_no_statement_scans_on_postgresql(postgresql_database: str) -> None:
    async with opened(postgresql_database) as database:
        await database.write(add_many, await database.write(add_account, "acme"))
    with psycopg.connect(postgresql_database, autocommit=True) as raw:
        raw.execute("ANALYZE")
        for name, each in STATEMENTS.items():
            text = f"EXPLAIN {each.postgresql}".encode()
            plan = "\n".join(row[0] for row in raw.execute(text, VALUES))
            assert "Seq Scan on search" not in plan, f"{name}\n{plan}"
            assert "pk_search_terms" in plan or "ix_search_names_unsettled" in plan, plan


class Counted:
    """A connection that counts statements and rows."""

    def __init__(self, inner: Connection) -> None:
        self._inner = inner
        self.sizes: list[int] = []

    def rows(self, statement: Statement, /, **parameters: object) -> list[Row]:
        found = list(self._inner.rows(statement, **parameters))
        self.sizes.append(len(found))
        return found


async def test_a_page_reads_what_it_shows(sqlite_database: str) -> None:
    def search(tx: Connection, account_id: str) -> list[int]:
        counted = Counted(tx)
        search_names(counted, account_id, "v49", None, 200)  # type: ignore[arg-type]
        return counted.sizes

    async with opened(sqlite_database) as database:
        account_id = await database.write(add_account, "acme")
        await database.write(add_many, account_id)
        sizes = await database.read(search, account_id)
    assert sizes == [0, 0, 111]  # not yet indexed; repositories; v49, v490 to v499, v4900 to v4999

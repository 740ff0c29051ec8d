"""Lists of a repository and an account with many rows read a range of an index, unsorted."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Final

import psycopg
import pytest
from sqlalchemy import text

from cloudcore.db.base import Connection
from cloudcore.db.postgresql import PostgresqlConnection
from cloudcore.db.postgresql_link import connect
from cloudcore.db.statement import Statement
from registry.metadata.images import details as images
from registry.metadata.repositories import daily_usage, repository, stale
from registry.metadata.repositories.repository import NewRepository, add_repository
from registry.metadata.tags import pointers
from registry.metadata.tags import pointers as tags
from tests.databases import add_account, opened

REPOSITORY: Final = "00000000-0000-7000-8000-000000000001"
MANY: Final = 20_000
NUMBERS: Final = (
    f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {MANY})"
)
FILL: Final = (
    (
        f"{NUMBERS} INSERT INTO manifest_bodies (account_id, digest, body)"
        " SELECT account_id, 'sha256:' || i, '' FROM n, repositories"
    ),
    (
        f"{NUMBERS} INSERT INTO manifests (id, repository_id, account_id, digest, media_type,"
        " is_index, manifest_size_bytes, size_bytes, annotations, pushed_at, tag_count)"
        " SELECT 'm' || i, r.id, r.account_id, 'sha256:' || i, 'm', false, 1, 0, '{}', 0, i % 2"
        " FROM n, repositories AS r"
    ),
    (
        f"{NUMBERS} INSERT INTO tags (repository_id, name, manifest_id, pushed_digest, created_at,"
        " updated_at) SELECT r.id, 'v' || i, 'm' || i, 'd', 0, 0 FROM n, repositories AS r"
    ),
    (
        f"{NUMBERS} INSERT INTO repositories (id, account_id, name, tag_mutability, source,"
        " created_at, updated_at) SELECT 'r' || i, r.account_id, 'r' || i, 'mutable', 'user', 0, 0"
        " FROM n, repositories AS r"
    ),
    (
        "INSERT INTO repository_activity (repository_id, account_id, used_at, size_bytes)"
        " SELECT id, account_id, length(name), 1 FROM repositories"
    ),
    (
        "INSERT INTO repository_growth (repository_id, span, account_id, size_before, size_bytes,"
        " change_bytes) SELECT id, 7, account_id, 0, length(name), length(name) FROM repositories"
    ),
)
LISTS: Final = {
    "images": (images._LIST[images.TagStatus.ANY], "manifests"),
    "tagged images": (images._LIST[images.TagStatus.TAGGED], "manifests"),
    "untagged images": (images._LIST[images.TagStatus.UNTAGGED], "manifests"),
    "tags": (tags._LIST, "tags"),
    "names of tags": (pointers._LIST, "tags"),
    "names of repositories": (repository._LIST, "repositories"),
    "stale repositories": (stale._LIST, "repository_activity"),
    "grown repositories": (daily_usage._LIST_GROWTH, "repository_growth"),
}
PLANNED_ONCE: Final = [name for name in LISTS if name.partition(" ")[0] not in ("stale", "grown")]
PLACES: Final = {
    "repository_id": REPOSITORY,
    "before": "n",
    "first": "v1",
    "last": "v\x7f",
    "limit": 50,
    "span": 7,
    "after": -1,
    "after_id": "",
    "handle": "acme",
    "name": "app",
}
OTHER_PLACES: Final[dict[str, dict[str, object]]] = {
    "stale repositories": {"before": 3},
    "names of tags": {"after": ""},
    "names of repositories": {"after": ""},
}


def fill(tx: Connection) -> str:
    """Make a repository with 20,000 images and tags, among 20,000 others; return its account."""
    account_id = add_account(tx, "acme")
    add_repository(tx, REPOSITORY, account_id, NewRepository("app", None, {}, "mutable", []), 1)
    for statement in FILL:
        tx.execute(Statement(text(statement)))
    return account_id


def values_of(account_id: str, name: str) -> dict[str, object]:
    return {**PLACES, "account_id": account_id, **OTHER_PLACES.get(name, {})}


async def test_lists_are_ranges_of_indexes_on_sqlite(sqlite_database: str) -> None:
    async with opened(sqlite_database) as database:
        account_id = await database.write(fill)
    with closing(sqlite3.connect(sqlite_database.removeprefix("sqlite:///"))) as raw:
        raw.execute("ANALYZE")
        for name, (statement, table) in LISTS.items():
            plan = raw.execute(
                f"EXPLAIN QUERY PLAN {statement.sqlite}", values_of(account_id, name)
            ).fetchall()
            details = [row[3] for row in plan]
            assert details[0].startswith(f"SEARCH {table} USING"), (name, details)
            assert not any("TEMP B-TREE" in each for each in details), (name, details)


@pytest.mark.postgresql
async def test_lists_are_ranges_of_indexes_on_postgresql(postgresql_database: str) -> None:
    """Their plans are kept: to plan takes longer than to read a page."""
    async with opened(postgresql_database) as database:
        account_id = await database.write(fill)
    with psycopg.connect(postgresql_database, autocommit=True) as raw:
        raw.execute("ANALYZE")
        for name, (statement, _) in LISTS.items():
            explain = f"EXPLAIN {statement.postgresql}".encode()
            rows = raw.execute(explain, values_of(account_id, name)).fetchall()
            plan = "\n".join(row[0] for row in rows)
            assert "Sort" not in plan, f"{name}\n{plan}"
            read_whole = plan.count("Seq Scan") - plan.count("Seq Scan on accounts")  # there is one
            assert read_whole == 0, f"{name}\n{plan}"
    for repository_id in (REPOSITORY, "r1"):  # a long one, and a short one beside it
        with closing(connect(postgresql_database)) as raw_link:
            connection = PostgresqlConnection(raw_link)
            for name in PLANNED_ONCE:
                statement, _ = LISTS[name]
                values = {**values_of(account_id, name), "repository_id": repository_id}
                for limit in (6, 51, 201) * 4:
                    connection.rows(statement, **{**values, "limit": limit})
                found = raw_link.execute(
                    "SELECT custom_plans FROM pg_prepared_statements ORDER BY prepare_time DESC",
                    prepare=False,
                ).fetchone()
                assert found == (5,), (name, repository_id)

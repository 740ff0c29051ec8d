"""Revision 0014 over runs of an older version: none is lost, and each stays as it was."""

from __future__ import annotations

import json
from typing import Any, Final

from alembic import command
from sqlalchemy import Connection, text

from cloudcore.jobs.runs import Run, list_runs
from registry.metadata.database import migrate, migration_connection
from registry.metadata.migrations import configuration
from tests.databases import opened

ACCOUNT: Final = "0189b7c0-0000-7000-8000-00000000000a"
REPOSITORY: Final = "0189b7c0-0000-7000-8000-00000000000b"
DOCUMENT: Final = '{"rules": [{"priority": 1, "description": "Grüße \\"all\\""}]}'
BIG: Final = 2**53 + 1
ADD_ACCOUNT: Final = (
    "INSERT INTO accounts (id, handle, status, auto_create_repositories, created_at)"
    " VALUES (:account, 'acme', 'active', true, 0)"
)
ADD_REPOSITORY: Final = (
    "INSERT INTO repositories (id, account_id, name, tag_mutability, source, created_at,"
    " updated_at) VALUES (:repository, :account, 'x', 'mutable', 'user', 0, 0)"
)
GC_RUN: Final = (
    "INSERT INTO gc_runs (id, account_id, status, started_by, unlinked, condemned, swept, removed,"
    " freed_bytes, kept, fault, started_at, finished_at) VALUES (:id, :account, :status, :by, 1, 2,"
    " 3, 4, :big, 6, :fault, 7, :finished)"
)
LIFECYCLE_RUN: Final = (
    "INSERT INTO lifecycle_runs (id, repository_id, document, status, started_by, evaluated,"
    " expired, freed_bytes, fault, started_at, finished_at) VALUES (:id, :repository, :document,"
    " :status, :by, 1, 2, :big, :fault, 7, :finished)"
)
ENDS: Final[list[tuple[str, str | None, int | None]]] = [
    ("running", None, None),
    ("succeeded", None, 8),
    ("failed", "STORE_UNAVAILABLE: 5% of it: it's full", 9),
]


def seed(connection: Connection) -> None:
    common = {"account": ACCOUNT, "repository": REPOSITORY, "document": DOCUMENT, "big": BIG}
    connection.execute(text(ADD_ACCOUNT), {"account": ACCOUNT})
    connection.execute(text(ADD_REPOSITORY), {"account": ACCOUNT, "repository": REPOSITORY})
    for number, (status, fault, finished) in enumerate(ENDS):
        end = {"status": status, "fault": fault, "finished": finished, "by": "crn:x" * number}
        for statement, name in ((GC_RUN, "c"), (LIFECYCLE_RUN, "l")):
            values = {**common, **end, "id": f"0189b7c0-0000-7000-8000-{name}0000000000{number}"}
            used = {key: value for key, value in values.items() if f":{key}" in statement}
            connection.execute(text(statement), used)


def rows(connection: Connection, table: str) -> list[dict[str, Any]]:
    found = connection.execute(text(f"SELECT * FROM {table} ORDER BY id"))
    return [dict(row) for row in found.mappings()]


def check(runs: list[Run], counts: dict[str, int], arguments: str | None) -> None:
    for (state, fault, finished), run in zip(ENDS, runs[::-1], strict=True):
        assert (run.state, run.fault, run.finished_at) == (state, fault, finished)
        assert (run.account_id, run.started_at, run.arguments) == (ACCOUNT, 7, arguments)
        assert (run.done, run.total, run.faults) == (0, None, [])
        assert list(run.counts.items()) == list(counts.items())
    assert [run.started_by for run in runs[::-1]] == ["", "crn:x", "crn:xcrn:x"]


async def test_runs_of_two_tables_become_one_and_go_back(bare_url: str) -> None:
    migrate(bare_url)
    with migration_connection(bare_url) as connection:
        command.downgrade(configuration(connection), "0014")
        command.downgrade(configuration(connection), "-1")
        seed(connection)
        before = [rows(connection, table) for table in ("gc_runs", "lifecycle_runs")]
        assert [len(each) for each in before] == [3, 3]
    migrate(bare_url)

    async with opened(bare_url) as database:
        collected = await database.read(list_runs, "registry.garbage_collection", ACCOUNT, "", 9)
        counts = {"unlinked": 1, "condemned": 2, "swept": 3}
        check(collected, counts | {"removed": 4, "freed_bytes": BIG, "kept": 6}, None)
        expired = await database.read(list_runs, "registry.lifecycle", REPOSITORY, "", 9)
        counts = {"evaluated": 1, "expired": 2, "freed_bytes": BIG}
        check(expired, counts, DOCUMENT)
        assert json.loads(DOCUMENT) == json.loads(expired[0].arguments)
    with migration_connection(bare_url) as connection:
        command.downgrade(configuration(connection), "0014")
        command.downgrade(configuration(connection), "-1")
        assert before == [rows(connection, table) for table in ("gc_runs", "lifecycle_runs")]

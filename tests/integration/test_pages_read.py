"""How many pages of an SQLite database a read takes first after a commit, few rows beside many.

SQLite keeps no page that it has read over a commit of another connection, so each page is a system
call then, and the thread's count of those is the number of pages. It grows with the depth of the
indexes on the way: a page or two for each of them, however many rows there are.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from cloudcore.db.base import Connection
from cloudcore.db.sqlite_connection import connect
from registry.metadata.images.manifests import find_by_digest, find_by_tag
from registry.metadata.repositories.deleted import count_deleted_repositories
from registry.metadata.repositories.repository import find_repository, list_repository_names
from registry.metadata.tags.pointers import list_tags
from tests.databases import opened

MANY: Final = 20_000
FEW: Final = 40
ACCOUNT: Final = "00000000-0000-7000-8000-000000000001"
REPOSITORY: Final = "00000000-0000-7000-8000-000000000002"
WHERE: Final = ("acme", "app")
COUNTS: Final = Path("/proc/thread-self/io")

NUMBERS: Final = (
    "WITH RECURSIVE n (i, id, digest) AS (SELECT 1, printf('%036d', 1), printf('sha256:%064d', 1)"
    " UNION ALL SELECT i + 1, printf('%036d', i + 1), printf('sha256:%064d', i + 1) FROM n"
    " WHERE i < :many)"
)
OF_ALL: Final = f"'{REPOSITORY}', '{ACCOUNT}'"
FILL: Final = (
    (
        "INSERT INTO accounts (id, handle, status, auto_create_repositories, created_at)"
        f" VALUES ('{ACCOUNT}', 'acme', 'active', true, 0)"
    ),
    (
        "INSERT INTO repositories (id, account_id, name, tag_mutability, source, created_at,"
        f" updated_at) VALUES ({OF_ALL}, 'app', 'mutable', 'user', 0, 0)"
    ),
    (
        f"{NUMBERS} INSERT INTO manifest_bodies (account_id, digest, body)"
        f" SELECT '{ACCOUNT}', digest, randomblob(600) FROM n"
    ),
    (
        f"{NUMBERS} INSERT INTO manifests (id, repository_id, account_id, digest, media_type,"
        " is_index, manifest_size_bytes, size_bytes, annotations, pushed_at)"
        f" SELECT id, {OF_ALL}, digest, 'm', false, 1, 0, '{{}}', 0 FROM n"
    ),
    (
        f"{NUMBERS} INSERT INTO tags (repository_id, name, manifest_id, pushed_digest, created_at,"
        f" updated_at) SELECT '{REPOSITORY}', 'v' || i, id, digest, 0, 0 FROM n"
    ),
    (
        f"{NUMBERS} INSERT INTO repositories (id, account_id, name, tag_mutability, source,"
        " created_at, updated_at, deleted_at, restorable_until) SELECT id || i,"
        f" '{ACCOUNT}', 'r' || i, 'mutable', 'user', 0, 0, nullif(i % 40, 0), nullif(i % 40, 0)"
        " FROM n WHERE i % 20 = 0"
    ),
)
DIGEST: Final = f"sha256:{FEW // 2:064d}"
READS: Final[dict[str, tuple[Callable[[Connection], object], int]]] = {
    "manifest by tag": (lambda tx: find_by_tag(tx, *WHERE, f"v{FEW // 2}"), 10),
    "manifest by digest": (lambda tx: find_by_digest(tx, *WHERE, DIGEST), 8),
    "repository": (lambda tx: find_repository(tx, *WHERE), 3),
    "tags": (lambda tx: list_tags(tx, *WHERE, "v20", 5), 4),
    "catalog": (lambda tx: list_repository_names(tx, "acme", "", 5), 2),
    "deleted repositories": (lambda tx: count_deleted_repositories(tx, ACCOUNT, 1), 8),
}
"""Reads, and how many pages more than in a small registry each may take."""


async def pages_of(path: Path, many: int) -> dict[str, int]:
    """Fill the database; return the pages of each read."""
    found = {}
    with closing(connect(path, "rw")) as writer:
        writer.execute("PRAGMA synchronous=OFF")
        for statement in FILL:
            writer.execute(statement, {"many": many} if ":many" in statement else {})
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        async with opened(f"sqlite:///{path}") as database:
            for name, (read, _) in READS.items():
                assert await database.read(read), name
                writer.execute("UPDATE accounts SET created_at = created_at + 1")
                before = calls()
                await database.read(read)
                found[name] = calls() - before
    return found


def calls() -> int:
    """Return the number of system calls of this thread that have read something."""
    lines = COUNTS.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("syscr"))


@pytest.mark.skipif(not COUNTS.exists(), reason="this system counts no system calls")
async def test_reads_take_hardly_more_pages_of_a_large_registry(
    sqlite_database: str, tmp_path: Path
) -> None:
    large = Path(sqlite_database.removeprefix("sqlite:///"))
    small = tmp_path / "small.db"
    with closing(sqlite3.connect(large)) as raw, closing(sqlite3.connect(small)) as copy:
        raw.backup(copy)
        copy.execute("PRAGMA journal_mode=WAL")
    few, many = await pages_of(small, FEW), await pages_of(large, MANY)
    assert min(many.values()) > 5, "pages are mapped, or kept over a commit"
    for name, (_, most) in READS.items():
        assert many[name] - few[name] <= most, (name, few[name], many[name])

"""Databases of registries to be measured: create, fill and recount them by plain SQL."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final, Protocol

import psycopg
from psycopg import sql

from benchmarks.scale_data import Contents, Rows
from benchmarks.servers import UnavailableError, free_port

DEBIAN: Final = Path("/usr/lib/postgresql")  # keeps the server's programs off the PATH
UNPRIVILEGED: Final = "postgres"  # the server refuses to run as root

_CACHE_KIB: Final = 1 << 20
_BATCH: Final = 1_000

RECOUNTS: Final = {
    "counters of repositories": """
        SELECT count(*) FROM repositories r
        LEFT JOIN (SELECT repository_id, count(*) AS counted FROM manifests
            GROUP BY repository_id) m ON m.repository_id = r.id
        LEFT JOIN (SELECT repository_id, count(*) AS counted,
                count(DISTINCT manifest_id) AS images FROM tags
            GROUP BY repository_id) t ON t.repository_id = r.id
        LEFT JOIN (SELECT repository_id, sum(size) AS bytes FROM repository_blobs
            WHERE manifest_refs > 0 GROUP BY repository_id) l ON l.repository_id = r.id
        WHERE image_count <> coalesce(m.counted, 0) OR tag_count <> coalesce(t.counted, 0)
          OR tagged_image_count <> coalesce(t.images, 0) OR size_bytes <> coalesce(l.bytes, 0)
          OR deleted_image_count <> (SELECT count(*) FROM deleted_manifests d
            WHERE d.repository_id = r.id)
          OR deleted_tag_count <> (SELECT count(*) FROM deleted_tags d
            JOIN manifests i ON i.repository_id = d.repository_id AND i.digest = d.digest
            WHERE d.repository_id = r.id)""",
    "repositories of folders": """
        SELECT count(*) FROM repository_folders f WHERE repository_count <> (
            SELECT count(*) FROM repositories r WHERE r.account_id = f.account_id
              AND deleted_at IS NULL AND substr(name, 1, length(folder)) = folder)""",
    "ordinals of tags' events": """
        SELECT count(*) FROM (SELECT 1 FROM tag_events GROUP BY repository_id, tag
            HAVING max(ordinal) - min(ordinal) + 1 <> count(*)
              OR count(DISTINCT ordinal) <> count(*)) wrong""",
    "manifest_refs of links": """
        SELECT count(*) FROM repository_blobs l LEFT JOIN (
            SELECT repository_id, digest, count(*) AS counted FROM manifest_blobs
            GROUP BY repository_id, digest) e
          ON e.repository_id = l.repository_id AND e.digest = l.digest
        WHERE l.manifest_refs <> coalesce(e.counted, 0)""",
    "tag_count of manifests": """
        SELECT count(*) FROM manifests m LEFT JOIN (
            SELECT manifest_id, count(*) AS counted FROM tags GROUP BY manifest_id) t
          ON t.manifest_id = m.id
        WHERE m.tag_count <> coalesce(t.counted, 0)""",
    "bodies of no manifest": """
        SELECT count(*) FROM manifest_bodies b WHERE NOT EXISTS (
            SELECT 1 FROM manifests m WHERE m.account_id = b.account_id AND m.digest = b.digest)
          AND NOT EXISTS (SELECT 1 FROM deleted_manifests d
            WHERE d.account_id = b.account_id AND d.digest = b.digest)""",
}
"""Queries that return 0 if every counter equals its recount."""


_UNINDEXED: Final = "SELECT count(*) FROM search_names WHERE state <> 'indexed'"


class Store(Protocol):
    """The database of a registry."""

    url: str

    def account_id(self) -> str:
        """Return the id of its only account."""

    def fill(self, contents: Contents) -> None:
        """Insert all rows."""

    def add(self, rows: Rows) -> None:
        """Insert rows while the registry is served."""

    def miscounts(self) -> list[str]:
        """Return which counters differ from a recount."""

    def unindexed(self) -> int:
        """Return how many names the search has not indexed yet."""


class SqliteStore:
    """The SQLite file of a data folder."""

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        self._path = path

    def account_id(self) -> str:
        """Return the id of its only account."""
        with closing(sqlite3.connect(self._path)) as raw:
            return str(raw.execute("SELECT id FROM accounts").fetchone()[0])

    def fill(self, contents: Contents) -> None:
        """Insert all rows, without statistics for the planner, as a registry does."""
        with closing(sqlite3.connect(self._path, isolation_level=None)) as raw:
            raw.execute("PRAGMA journal_mode=OFF")
            raw.execute("PRAGMA synchronous=OFF")
            raw.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
            raw.execute("BEGIN")
            for rows in contents.tables():
                raw.executemany(_insertion(rows), rows.rows)
            raw.execute("COMMIT")
            broken = raw.execute("PRAGMA foreign_key_check").fetchmany(3)
            if broken:
                raise UnavailableError(f"rows that refer to nothing: {broken}")
            raw.execute("PRAGMA journal_mode=WAL")

    def add(self, rows: Rows) -> None:
        """Insert rows while the registry is served, under the write lock of its processes."""
        lock = self._path.with_name(f"{self._path.name}.lock")
        with lock.open("ab") as held, closing(sqlite3.connect(self._path, timeout=60)) as raw:
            while batch := list(islice(rows.rows, _BATCH)):
                fcntl.flock(held, fcntl.LOCK_EX)
                with raw:
                    raw.executemany(_insertion(rows), batch)
                fcntl.flock(held, fcntl.LOCK_UN)

    def miscounts(self) -> list[str]:
        """Return which counters differ from a recount."""
        with closing(sqlite3.connect(self._path)) as raw:
            raw.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
            return [what for what, query in RECOUNTS.items() if raw.execute(query).fetchone()[0]]

    def unindexed(self) -> int:
        """Return how many names the search has not indexed yet."""
        with closing(sqlite3.connect(self._path)) as raw:
            return int(raw.execute(_UNINDEXED).fetchone()[0])


def _insertion(rows: Rows) -> str:
    marks = ",".join("?" * (rows.columns.count(",") + 1))
    return f"INSERT INTO {rows.table} ({rows.columns}) VALUES ({marks})"


class PostgresqlStore:
    """A database of a PostgreSQL server."""

    def __init__(self, url: str) -> None:
        self.url = url

    def account_id(self) -> str:
        """Return the id of its only account."""
        return str(self._value("SELECT id FROM accounts"))

    def fill(self, contents: Contents) -> None:
        """Insert all rows and analyze the tables, as autovacuum does."""
        with psycopg.connect(self.url) as raw, raw.cursor() as cursor:
            for rows in contents.tables():
                _copy(cursor, rows)
        with psycopg.connect(self.url, autocommit=True) as raw:
            raw.execute("VACUUM (ANALYZE)")

    def add(self, rows: Rows) -> None:
        """Insert rows while the registry is served."""
        with psycopg.connect(self.url) as raw, raw.cursor() as cursor:
            _copy(cursor, rows)

    def miscounts(self) -> list[str]:
        """Return which counters differ from a recount."""
        return [what for what, query in RECOUNTS.items() if self._value(query)]

    def unindexed(self) -> int:
        """Return how many names the search has not indexed yet."""
        return int(self._value(_UNINDEXED))

    def _value(self, query: str) -> Any:  # noqa: ANN401
        with psycopg.connect(self.url) as raw:
            row = raw.execute(query.encode()).fetchone()
            assert row is not None
            return row[0]


def _copy(cursor: psycopg.Cursor, rows: Rows) -> None:
    columns = sql.SQL(",").join(map(sql.Identifier, rows.columns.split(",")))
    into = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(rows.table), columns)
    with cursor.copy(into) as copy:
        for row in rows.rows:
            copy.write_row(row)


class PostgresqlServer:
    """A running PostgreSQL server: its port, and its main process."""

    def __init__(self, port: int, pid: int) -> None:
        self._port = port
        self.pid = pid

    def create(self, name: str) -> PostgresqlStore:
        """Create and return an empty database."""
        with psycopg.connect(self._url("postgres"), autocommit=True) as raw:
            raw.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return PostgresqlStore(self._url(name))

    def _url(self, name: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._port}/{name}"


@contextmanager
def postgresql() -> Iterator[PostgresqlServer]:
    """Run a PostgreSQL server with durable commits in a temporary folder.

    Raises:
        UnavailableError: PostgreSQL is not installed.

    """
    programs = _server_programs()
    account = UNPRIVILEGED if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="scale-postgresql-") as name:
        folder = Path(name)
        if account:
            shutil.chown(folder, account, account)
        cluster, port = folder / "cluster", free_port()
        _run(
            *(programs / "initdb", "--pgdata", cluster, "--username", "postgres"),
            *("--auth", "trust", "--encoding", "UTF8", "--locale", "C"),
            account=account,
        )
        options = (
            f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={folder}"
        )
        control = (programs / "pg_ctl", "--pgdata", cluster, "--wait")
        _run(*control, "--log", folder / "log", "--options", options, "start", account=account)
        try:
            pid = int((cluster / "postmaster.pid").read_text().splitlines()[0])
            yield PostgresqlServer(port, pid)
        finally:
            _run(*control, "--mode", "fast", "stop", account=account)


def _server_programs() -> Path:
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).parent
    found = sorted(DEBIAN.glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if not found:
        raise UnavailableError("no PostgreSQL server is installed; --database sqlite needs none")
    return found[-1].parent


def _run(*command: str | Path, account: str | None) -> None:
    # Into a file: the server that pg_ctl starts would keep a pipe open.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            command, user=account, stdout=output, stderr=output, cwd="/", check=False
        )
        output.seek(0)
        if done.returncode:
            raise UnavailableError(f"{command}\n{output.read().decode()}")

"""Migrate the database at a URL to the newest revision, and check it for damage."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import Connection, NullPool, create_engine, event, text

from cloudcore.db.opening import is_postgresql, sqlite_path
from cloudcore.db.refusals import DiskFull, is_full
from cloudcore.db.sqlite_connection import check_damage, connect, restrict_access, unusable
from cloudcore.db.sqlite_writer import WriteLock
from cloudcore.errors import Unavailable
from registry.metadata.migrations import configuration, revisions

_CHECKED_BYTES = 64 << 20
"""Largest file that is checked completely at every start, in a few tenths of a second."""
LEAST_POSTGRESQL = 14
"""The oldest supported major version of PostgreSQL (`idle_session_timeout`)."""
_MIGRATION_LOCK = 0x656E7472  # number of the advisory lock; arbitrary but unique


class DatabaseTooNew(Unavailable):
    """The tables have a revision that this version of the program does not know."""


def migrate(url: str) -> None:
    """Migrate the tables to the newest revision, in one transaction; on SQLite, create the file.

    Takes a few milliseconds if there is nothing to do. Several processes may call it at once: one
    migrates, and the others wait.

    Raises:
        DatabaseTooNew: a later version of the program has migrated the database.
        Unavailable: the database cannot be reached, or its file is damaged.
        DiskFull: there is no room for the changes.

    """
    if _is_newest(_revision(url)):
        return
    from alembic import command  # noqa: PLC0415 - 0.25 s that most starts do not need

    try:
        with migration_connection(url) as connection:
            command.upgrade(configuration(connection), "head")
    except Exception as error:
        if not is_postgresql(url) and is_full(sqlite_path(url), getattr(error, "orig", error)):
            raise DiskFull(sqlite_path(url)) from error
        raise


def has_tables(url: str) -> bool:
    """Return True if the database has tables of any revision; create no file.

    Raise `Unavailable` if the database cannot be reached, or its file is damaged.
    """
    if not is_postgresql(url) and not sqlite_path(url).exists():
        return False
    return _revision(url) is not None


def check_whole(url: str) -> None:
    """Check all of an SQLite file for damage; on PostgreSQL, do nothing.

    Raise `Unavailable` if the file is damaged or cannot be read.
    """
    if not is_postgresql(url):
        _check_file(sqlite_path(url), None)


def _is_newest(revision: str | None) -> bool:
    known = revisions()
    if revision is not None and revision not in known:
        raise DatabaseTooNew(
            f"the database is at revision {revision}, and this program knows none after"
            f" {known[-1]}: run the version that wrote it or a later one, or restore a backup"
            " taken before the upgrade"
        )
    return revision == known[-1]


def _revision(url: str) -> str | None:
    """Return the revision of the tables without loading Alembic; None if there are no tables."""
    if is_postgresql(url):
        import psycopg  # noqa: PLC0415 - one driver of two

        try:
            with psycopg.connect(url, connect_timeout=10) as connection:
                _check_version(connection.info.server_version // 10_000)
                found = connection.execute("SELECT to_regclass('alembic_version')").fetchone()
                if found is None or found[0] is None:
                    return None
                row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        except psycopg.OperationalError as error:
            raise Unavailable(f"cannot reach the database: {error}") from error
        return None if row is None else str(row[0])
    return _sqlite_revision(sqlite_path(url))


def _check_version(major: int) -> None:
    if major < LEAST_POSTGRESQL:
        raise Unavailable(
            f"the database is PostgreSQL {major}; this program needs {LEAST_POSTGRESQL} or newer"
        )


def _sqlite_revision(path: Path) -> str | None:
    is_new = not path.exists()
    restrict_access(path)
    if is_new:
        return None
    _check_file(path, _CHECKED_BYTES)
    try:
        with closing(connect(path, "ro")) as raw:
            named = "SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'"
            if raw.execute(named).fetchone() is None:
                return None
            row = raw.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.OperationalError as error:
        raise unusable(path, error, "read") from error
    return None if row is None else str(row[0])


def _check_file(path: Path, at_most: int | None) -> None:
    try:
        check_damage(path, at_most=at_most)
    except sqlite3.OperationalError as error:
        raise unusable(path, error, "read") from error


@contextmanager
def migration_connection(url: str) -> Iterator[Connection]:
    """Yield a connection for Alembic, in a transaction that holds the lock for migrations."""
    if is_postgresql(url):
        import psycopg  # noqa: PLC0415 - one driver of two

        engine = create_engine(
            "postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=NullPool
        )
        with engine.begin() as connection:
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})"))
            yield connection
        return
    path = sqlite_path(url)
    engine = create_engine("sqlite://", creator=lambda: connect(path, "rwc"), poolclass=NullPool)

    @event.listens_for(engine, "connect")
    def disable_foreign_keys(raw: sqlite3.Connection, _record: object) -> None:
        # Alembic alters a table on SQLite by copying and dropping it, which would delete rows
        # that reference it.
        raw.execute("PRAGMA foreign_keys=OFF")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    with closing(WriteLock(path)) as lock, lock.held():
        with closing(connect(path, "rwc")) as raw:
            raw.execute("PRAGMA journal_mode=WAL")
        with engine.begin() as connection:
            yield connection
            broken = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
            if broken is not None:
                raise ValueError(f"the migration leaves a row of {broken[0]} without its parent")

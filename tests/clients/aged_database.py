"""The database of an install, as an earlier version of the program would have left it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from alembic import command

from registry.metadata.database import migration_connection
from registry.metadata.migrations import configuration


def age(database: Path, revision: str) -> None:
    """Bring a database to an older revision, with all rows that it had room for.

    The install must not be served.
    """
    newer = database.with_name("newer.db")
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("VACUUM INTO ?", (str(newer),))  # with what is in the log still
    for file in database.parent.glob(f"{database.name}*"):
        file.unlink()
    with migration_connection(f"sqlite:///{database}") as migrated:
        command.upgrade(configuration(migrated), revision)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("ATTACH ? AS newer", (str(newer),))
        kept = _tables(connection, "main") & _tables(connection, "newer")
        for table in sorted(kept - {"alembic_version"}):
            older = _columns(connection, "main", table)
            names = [name for name in _columns(connection, "newer", table) if name in older]
            listed = ", ".join(f'"{name}"' for name in names)
            connection.execute(f'DELETE FROM main."{table}"')
            connection.execute(
                f'INSERT INTO main."{table}" ({listed}) SELECT {listed} FROM newer."{table}"'
            )
    newer.unlink()


def revision_of(database: Path) -> str:
    """Return the revision of a database."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return str(connection.execute("SELECT version_num FROM alembic_version").fetchone()[0])


def _tables(connection: sqlite3.Connection, schema: str) -> set[str]:
    rows = connection.execute(
        f"SELECT name FROM {schema}.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    )
    return {row[0] for row in rows}


def _columns(connection: sqlite3.Connection, schema: str, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f'PRAGMA {schema}.table_info("{table}")')]

"""The catalog of a PostgreSQL dump: rows that backups read, from the dump's snapshot, in SQLite.

A dump can only be read by restoring it. So the names of the objects, and the signing keys that show
which root key is the right one, are also copied into a file beside the dump. The tables in this
file have the same names as in PostgreSQL, so that the same queries work.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

import psycopg
from psycopg import sql

from cloudcore.identity.tables import signing_keys
from cloudcore.identity.tokens.signing_keys import SigningKeyRow
from cloudcore.objects.stored_rows import NamedObject
from cloudcore.storage.needs import StoredPiece
from cloudcore.storage.tables import storage_pieces
from registry.blobstore.disk.disk_io import closing_fd
from registry.metadata.tables import blob_objects

_PAGE: Final = 2000
_LEFT_OUT: Final = frozenset({"id", "body", "wrapped"})


class _Rows(NamedTuple):
    """A table to copy: its columns, the first of which is the key, and a condition on its rows."""

    table: str
    columns: tuple[str, ...]
    condition: sql.SQL


_ROWS: Final = (
    _Rows(
        blob_objects.name,
        (*NamedObject._fields, "checksum", "is_inline", "state"),
        sql.SQL("NOT is_inline"),
    ),
    _Rows(
        storage_pieces.name,
        ("id", "account_id", "body", *(n for n in StoredPiece._fields if n not in _LEFT_OUT)),
        sql.SQL("body IS NULL AND condemned_at IS NULL"),
    ),
    _Rows(signing_keys.name, SigningKeyRow._fields, sql.SQL("true")),
)


def write_catalog(raw: psycopg.Connection, path: Path) -> None:
    """Write the rows that the transaction of `raw` sees to the new catalog file `path`, durably."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    with closing(sqlite3.connect(path, isolation_level=None)) as catalog:
        catalog.execute("PRAGMA journal_mode=OFF")
        catalog.execute("BEGIN")
        for rows in _ROWS:
            _copy(raw, catalog, rows)
        catalog.execute("COMMIT")
    with closing_fd(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as descriptor:
        os.fsync(descriptor)


def _copy(raw: psycopg.Connection, catalog: sqlite3.Connection, rows: _Rows) -> None:
    names = ", ".join(rows.columns)
    catalog.execute(
        f"CREATE TABLE {rows.table} ({names}, PRIMARY KEY ({rows.columns[0]})) WITHOUT ROWID"
    )
    query = sql.SQL("SELECT {} FROM {} WHERE {}").format(
        sql.SQL(", ").join(map(sql.Identifier, rows.columns)),
        sql.Identifier(rows.table),
        rows.condition,
    )
    places = ", ".join("?" * len(rows.columns))
    with raw.cursor(name="catalog") as found:
        found.itersize = _PAGE
        catalog.executemany(
            f"INSERT INTO {rows.table} VALUES ({places})",  # noqa: S608 - names of our tables
            found.execute(query),
        )

"""The rows of a PostgreSQL database of the tests, kept and put back.

To copy a database of a thousand tables and indices, and to drop it, takes a quarter of a second;
to put its rows back, a tenth of that.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import psycopg
from psycopg import sql

_END_OTHERS: Final = """
    SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
# All that a test may have made besides rows, but for functions that replace others of their name.
# What was changed in place is told by the last transaction that wrote a row, which copies keep.
_SHAPE: Final = """
    SELECT concat_ws(' ',
        (SELECT concat_ws(' ', count(*), sum(oid::bigint), sum(hashname(relname)::bigint))
            FROM pg_class WHERE relnamespace = 'public'::regnamespace),
        (SELECT concat_ws(' ', count(*), max(xmin::text::bigint))
            FROM pg_attribute WHERE attrelid >= 16384),
        (SELECT concat_ws(' ', count(*), sum(oid::bigint)) FROM pg_constraint),
        (SELECT concat_ws(' ', count(*), sum(oid::bigint)) FROM pg_attrdef),
        (SELECT concat_ws(' ', count(*), max(xmin::text::bigint)) FROM pg_trigger),
        (SELECT concat_ws(' ', count(*), sum(oid::bigint)) FROM pg_proc WHERE oid >= 16384),
        (SELECT string_agg(nspname, ' ' ORDER BY oid) FROM pg_namespace
            WHERE nspname !~ '^pg_(toast_)?temp_'),
        (SELECT string_agg(setconfig::text, ' ') FROM pg_db_role_setting)
    )
"""
# The size of a file, as `pg_relation_size` would open each table.
_TABLES: Final = """
    SELECT relname FROM pg_class
    WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
        AND (pg_stat_file(pg_relation_filepath(oid))).size > 0
"""
_SEQUENCES: Final = """
    SELECT sequencename, last_value FROM pg_sequences
    WHERE schemaname = 'public' AND last_value IS NOT NULL
"""


class Rows(NamedTuple):
    """The rows of a database, and what it has besides."""

    shape: str
    """Of a copy of the same template."""
    tables: dict[str, bytes]
    """As `COPY` writes them, in binary."""
    sequences: dict[str, int]


def rows_of(url: str) -> Rows:
    """Return the rows of a database."""
    with psycopg.connect(url) as connection:
        tables = {name: _copied(connection, name) for (name,) in connection.execute(_TABLES)}
        return Rows(_shape(connection), tables, dict(connection.execute(_SEQUENCES).fetchall()))


def put_back(url: str, rows: Rows) -> bool:
    """Give a database these rows alone, without who is connected; return False if it cannot be.

    That is if anything but rows was changed in it. It forgets what `ANALYZE` has found.
    """
    with psycopg.connect(url) as connection:
        connection.execute(_END_OTHERS)
        if _shape(connection) != rows.shape:
            return False
        connection.execute("DELETE FROM pg_statistic WHERE starelid >= 16384")
        # Neither references are asked, nor is anything triggered.
        connection.execute("SET LOCAL session_replication_role = replica")
        found = [name for (name,) in connection.execute(_TABLES)]
        sequences = [name for name, _ in connection.execute(_SEQUENCES)]
        with connection.pipeline():
            for name in found:
                connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(name)))
            for name in {*sequences} - {*rows.sequences}:
                connection.execute(
                    sql.SQL("ALTER SEQUENCE {} RESTART").format(sql.Identifier(name))
                )
            for name, value in rows.sequences.items():
                connection.execute("SELECT setval(quote_ident(%s)::regclass, %s)", (name, value))
        for name, content in rows.tables.items():
            into = sql.SQL("COPY {} FROM STDIN (FORMAT binary)").format(sql.Identifier(name))
            with connection.cursor().copy(into) as copy:
                copy.write(content)
    return True


def _shape(connection: psycopg.Connection) -> str:
    found = connection.execute(_SHAPE).fetchone()
    assert found is not None
    return str(found[0])


def _copied(connection: psycopg.Connection, table: str) -> bytes:
    out = sql.SQL("COPY {} TO STDOUT (FORMAT binary)").format(sql.Identifier(table))
    with connection.cursor().copy(out) as copy:
        return b"".join(copy)

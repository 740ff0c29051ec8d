"""Dump a PostgreSQL database into a backup, and restore a dump into an empty database.

The dump and the catalog beside it are made in one transaction, from one snapshot. They have only
the registry's tables and trigger functions: the schema may contain others.
"""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from cloudcore.db.postgresql import PostgresqlConnection
from cloudcore.db.postgresql_link import connect
from cloudcore.errors import Unavailable
from registry.backup.catalog import write_catalog
from registry.backup.errors import DumpRefused
from registry.backup.files import sha256_of, size_of
from registry.backup.manifest import BackupManifest, Damage, DatabaseFile, Dump
from registry.backup.objects import CopyProgress, Report, damaged_inline
from registry.backup.programs import environment_of, feed, find_program, reading_from
from registry.composition.unfinished_restoration import MARK
from registry.metadata.collector.generations import first_account
from registry.metadata.database import migrate
from registry.metadata.migrations import revisions

_CHUNK: Final = 1 << 20
_REVISIONS: Final = "alembic_version"
_PATIENT: Final = """
SET statement_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET lock_timeout = '60s'
"""
_OURS: Final = re.compile(
    r"\d+; \d+ \d+ (?:(?:TABLE|TABLE DATA|SEQUENCE|SEQUENCE OWNED BY|SEQUENCE SET|DEFAULT|"
    r"CONSTRAINT|CHECK CONSTRAINT|FK CONSTRAINT|INDEX|TRIGGER) .*"
    r"|FUNCTION \S+ (?P<function>\w+)\(.*)"
)
"""Matches the lines of a dump's table of contents that may be restored."""
_RELATIONS: Final = """
SELECT c.relname FROM pg_class c
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
AND NOT EXISTS (
    SELECT FROM pg_depend d
    WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
)
ORDER BY c.relname
"""
"""Lists the tables and views of the schema, without those of extensions."""
_FUNCTIONS: Final = """
SELECT DISTINCT p.proname FROM pg_trigger t
JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid
WHERE NOT t.tgisinternal AND c.relnamespace = current_schema()::regnamespace
AND p.pronamespace = c.relnamespace AND c.relname = ANY(%s) ORDER BY p.proname
"""
_END_OTHERS: Final = """
SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = %s
"""


def first_account_of(url: str) -> str | None:
    """Return the id of the first account, or None before it exists; or raise `Unavailable`."""
    with _session(url) as raw:
        return first_account(PostgresqlConnection(raw))


def dump_database(
    url: str, target: Path, backup_id: str, report: Report, *, verifies: bool
) -> tuple[DatabaseFile, list[Damage]]:
    """Write a dump and its catalog to the folder `target`.

    Return the description of the dump, and the damaged inline objects, whose bytes are in the
    database; with `verifies`, hash all of these.

    Raises:
        DumpRefused: the database has the tables of another version of the program.
        ProgramFailed: ``pg_dump`` is missing or too old, or it failed.
        Unavailable: the database cannot be reached, or failed.

    """
    file, catalog = target / f"metadata-{backup_id}.dump", target / f"catalog-{backup_id}.db"
    with _session(url) as raw:
        server = _major(raw)
        program, ours = find_program("pg_dump", server), _our_tables()
        with raw.transaction():
            raw.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            (snapshot,) = _values(raw, "SELECT pg_export_snapshot()")
            _check_revision(raw)
            (schema,) = _values(raw, "SELECT current_schema()")
            others = [name for name in _values(raw, _RELATIONS) if name not in ours]
            functions = _values(raw, _FUNCTIONS, ours)
            report(CopyProgress("database", 0, 1))
            write_catalog(raw, catalog)
            damaged = damaged_inline(PostgresqlConnection(raw), verifies=verifies)
            command = [
                *(program.path, "--format=custom", "--compress=1", f"--snapshot={snapshot}"),
                *("--no-owner", "--no-privileges", "--no-tablespaces", "--no-security-labels"),
                *("--no-password", "--lock-wait-timeout=60s", f"--schema={_pattern(schema)}"),
                *(f"--exclude-table={_pattern(schema)}.{_pattern(name)}" for name in others),
            ]
            with reading_from(command, environment_of(url, raw, "entrepot backup")) as dumped:
                sha256 = _write(dumped.read, file, report)
    dump = Dump(catalog.name, sha256_of(catalog), schema, functions, server, program.major)
    return DatabaseFile(file.name, size_of(file) or 0, sha256, dump), damaged


def check_empty(url: str, manifest: BackupManifest, *, is_continued: bool) -> None:
    """Check that a dump can be restored into a database: its schema must have no tables.

    If the restoration `is_continued`, the tables of this backup are allowed.

    Raises:
        DumpRefused: the database has other tables or another schema, or its server is too old.
        ProgramFailed: ``pg_restore`` is missing or too old.
        Unavailable: the database cannot be reached.

    """
    dump = _dump_of(manifest)
    with _session(url) as raw:
        (schema,) = _values(raw, "SELECT current_schema()")
        if schema != dump.schema:
            raise DumpRefused(
                f"the backup is of the schema {dump.schema!r}, and new tables of this database go"
                f" to {schema!r}: create that schema, and name it in ENTREPOT_DATABASE_URL"
                " (?options=-csearch_path%3D…)"
            )
        if _major(raw) < dump.server:
            raise DumpRefused(
                f"the backup is of PostgreSQL {dump.server}, and the server is {_major(raw)}: use"
                f" a server of version {dump.server} or later"
            )
        find_program("pg_restore", max(_major(raw), dump.program))
        found = _values(raw, _RELATIONS)
        if found and not (is_continued and _marked(raw, found) == manifest.id):
            raise _refusal(found)


def mark_database(url: str, manifest: BackupManifest) -> None:
    """Mark a database as being restored, so that no program of ours creates tables there.

    Raise `DumpRefused` if the database has other tables, `Unavailable` if it cannot be reached.
    """
    with _session(url) as raw:
        found = _values(raw, _RELATIONS)
        if _marked(raw, found) == manifest.id:
            return
        if found:
            raise _refusal(found)
        table = sql.Identifier(MARK)
        with raw.transaction():
            raw.execute(sql.SQL("CREATE TABLE {} (backup_id text)").format(table))
            raw.execute(sql.SQL("INSERT INTO {} VALUES (%s)").format(table), [manifest.id])


def _refusal(found: Sequence[str]) -> DumpRefused:
    return DumpRefused(
        f"the database has tables already, such as {found[0]}; name an empty one with"
        " ENTREPOT_DATABASE_URL, or make this one empty (dropdb, createdb)"
    )


def restore_dump(url: str, folder: Path, manifest: BackupManifest, report: Report) -> None:
    """Restore the dump of the backup in `folder`, in one transaction, unless already restored.

    The caller has marked the database, which stays marked until `forget_mark` is called.

    Raises:
        DumpRefused: the database has tables that are not from this backup.
        ProgramFailed: ``pg_restore`` failed; the database has nothing but the mark.
        Unavailable: the database cannot be reached, or failed.

    """
    dump = _dump_of(manifest)
    application = f"entrepot restore {manifest.id}"
    file = folder / manifest.database.file
    with _session(url) as raw:
        # A killed restoration may have left a ``pg_restore`` that is about to commit.
        raw.execute(_END_OTHERS, [application])
        found = _values(raw, _RELATIONS)
        if _REVISIONS in found:
            # Every backup has an account. Tables without one were made by starting a server.
            if not _values(raw, "SELECT 1 FROM accounts LIMIT 1"):
                raise _refusal([each for each in found if each != MARK])
            return
        program = find_program("pg_restore", max(_major(raw), dump.program))
        environment = environment_of(url, raw, application)
        with reading_from([program.path, "--list", str(file)], environment) as listed:
            wanted = _wanted(listed.read().decode(), dump.functions)
        with tempfile.NamedTemporaryFile("w") as chosen:
            chosen.write(wanted)
            chosen.flush()
            command = [
                *(program.path, "--single-transaction", "--no-owner", "--no-privileges"),
                *("--no-tablespaces", "--no-password", f"--use-list={chosen.name}"),
                f"--dbname={make_conninfo(dbname=raw.info.dbname)}",
            ]
            feed(command, environment, _chunks(file, report))
        raw.execute("ANALYZE")


def forget_mark(url: str) -> None:
    """Drop the mark of a finished restoration."""
    with _session(url) as raw:
        raw.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(MARK)))


@contextmanager
def _session(url: str) -> Iterator[psycopg.Connection]:
    """Open a connection with long timeouts for the block; turn its errors into `Unavailable`."""
    try:
        with closing(connect(url)) as raw:
            raw.execute(_PATIENT, prepare=False)
            yield raw
    except psycopg.Error as error:
        raise Unavailable(f"the database failed: {str(error).strip()}") from error


def _values(raw: psycopg.Connection, query: str, *parameters: object) -> list[Any]:
    return [row[0] for row in raw.execute(query.encode(), parameters)]


def _major(raw: psycopg.Connection) -> int:
    return raw.info.server_version // 10_000


def _check_revision(raw: psycopg.Connection) -> None:
    (found,) = _values(raw, f"SELECT version_num FROM {_REVISIONS}")  # noqa: S608 - a constant
    newest = revisions()[-1]
    if found != newest:
        raise DumpRefused(
            f"the database is at revision {found}, and this program makes {newest}: back up with"
            " the version that serves it, or start this one once"
        )


@cache
def _our_tables() -> Sequence[str]:
    """Return the names of all tables that the migrations create, by running them on SQLite.

    This takes a second. To list the tables of the modules imported so far would be quicker, but may
    miss some.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tables.db"
        migrate(f"sqlite:///{path}")
        with closing(sqlite3.connect(path)) as made:
            return [
                row[0]
                for row in made.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            ]


def _pattern(name: str) -> str:
    """Return the ``pg_dump`` pattern that matches only this name."""
    return '"' + name.replace('"', '""') + '"'


def _wanted(listed: str, functions: Sequence[str]) -> str:
    """Return the lines about our tables from a dump's table of contents, in order."""
    wanted = []
    for line in listed.splitlines():
        found = _OURS.fullmatch(line)
        if found and (found["function"] is None or found["function"] in functions):
            wanted.append(line)
    return "\n".join(wanted) + "\n"


def _marked(raw: psycopg.Connection, found: Sequence[str]) -> str | None:
    """Return the id of the backup that is being restored, or None if the database is not marked."""
    if MARK not in found:
        return None
    marks = _values(raw, f"SELECT backup_id FROM {MARK}")  # noqa: S608 - a constant
    return marks[0] if marks else None


def _dump_of(manifest: BackupManifest) -> Dump:
    assert manifest.database.dump is not None
    return manifest.database.dump


def _write(read: Any, file: Path, report: Report) -> str:  # noqa: ANN401 - of a pipe
    """Copy a stream to a new file, durably; return its SHA-256."""
    digest, written = hashlib.sha256(), 0
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as copy:
        while chunk := read(_CHUNK):
            copy.write(chunk)
            digest.update(chunk)
            written += len(chunk)
            report(CopyProgress("database", 0, 1, written))
        copy.flush()
        os.fsync(descriptor)
    return digest.hexdigest()


def _chunks(file: Path, report: Report) -> Iterator[bytes]:
    done = 0
    with file.open("rb") as dump:
        while chunk := dump.read(_CHUNK):
            yield chunk
            done += len(chunk)
            report(CopyProgress("database", 0, 1, done))

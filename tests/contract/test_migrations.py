"""The history of the tables leads to `registry.metadata.tables`, on both databases."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, MetaData, inspect, text

from cloudcore.db.schema import metadata
from registry.metadata.database import DatabaseTooNew, migrate, migration_connection
from registry.metadata.migrations import configuration, revisions
from registry.metadata.migrations.__main__ import describe_tables
from tests.databases import program_environment

describe_tables()

CONSTRAINTS = text(
    "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
    " WHERE connamespace = 'public'::regnamespace AND conrelid <> 0"
)
INDEXES = text("SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'")
OBJECTS = text(
    "SELECT tbl_name, name, sql FROM sqlite_master"
    " WHERE type <> 'trigger' OR name NOT GLOB 'search_*'"
)
COLUMNS = text(
    "SELECT table_name, column_name, data_type, character_maximum_length, collation_name,"
    " is_nullable, column_default FROM information_schema.columns WHERE table_schema = 'public'"
)


def schema(connection: Connection) -> list[Any]:
    """Return every table, column, constraint and index in the database's own words.

    Left out are the triggers of the search, which migrations alone make.
    """
    if connection.dialect.name == "postgresql":
        found = [
            tuple(row)
            for query in (CONSTRAINTS, INDEXES, COLUMNS)
            for row in connection.execute(query)
        ]
        return sorted(map(repr, (row for row in found if row[0] != "alembic_version")))
    rows = connection.execute(OBJECTS)
    return sorted(
        # SQLite quotes the name of a table that was copied, and adds columns on a line of others.
        (table, name, " ".join(part.split()).removesuffix(" )").replace('"', ""))
        for table, name, sql in rows
        for part in (sql or "").split(",")
        if table != "alembic_version"
    )


def drop_all(connection: Connection) -> None:
    """Drop all tables, and with them what belongs to them."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
        return
    tables = MetaData()
    tables.reflect(connection)
    tables.drop_all(connection)


def test_the_newest_revision_is_the_tables(database_url: str) -> None:
    with migration_connection(database_url) as connection:
        differences = compare_metadata(MigrationContext.configure(connection), metadata)
        migrated = schema(connection)
        drop_all(connection)
        metadata.create_all(connection)
        assert migrated == schema(connection)
    assert differences == []


def test_a_revision_is_applied_whole_or_not_at_all(bare_url: str) -> None:
    def interrupted() -> None:
        with migration_connection(bare_url) as connection:
            command.upgrade(configuration(connection), "head")
            assert inspect(connection).get_table_names()
            raise InterruptedError

    with pytest.raises(InterruptedError):
        interrupted()
    with migration_connection(bare_url) as connection:
        assert inspect(connection).get_table_names() == []
    migrate(bare_url)


def test_revisions_form_one_line_in_the_order_of_their_numbers(bare_url: str) -> None:
    with migration_connection(bare_url) as connection:
        script = ScriptDirectory.from_config(configuration(connection))
    in_line = [revision.revision for revision in script.walk_revisions()]
    assert in_line == revisions()[::-1]


def test_a_database_of_a_later_version_is_refused(database_url: str) -> None:
    with migration_connection(database_url) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(DatabaseTooNew, match="revision 9999"):
        migrate(database_url)


def test_processes_may_migrate_at_once(bare_url: str) -> None:
    code = "import sys; from registry.metadata.database import migrate; migrate(sys.argv[1])"
    migrating = [
        subprocess.Popen([sys.executable, "-c", code, bare_url], env=program_environment())
        for _ in range(3)
    ]
    assert [process.wait() for process in migrating] == [0] * 3
    with migration_connection(bare_url) as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_finding_nothing_to_do_does_not_load_alembic(database_url: str) -> None:
    code = (
        "import sys; from registry.metadata.database import migrate; migrate(sys.argv[1]);"
        " sys.exit('alembic' in sys.modules)"
    )
    subprocess.run(
        [sys.executable, "-c", code, database_url], env=program_environment(), check=True
    )


def test_a_url_of_another_database_is_refused() -> None:
    with pytest.raises(ValueError, match="sqlite:///"):
        migrate("mysql://root:secret@localhost/registry")


def test_altering_a_table_keeps_what_refers_to_it(sqlite_database: str) -> None:
    """SQLite alters by copy and drop; keys that cascade or restrict must not notice."""
    url = sqlite_database
    with migration_connection(url) as connection:
        connection.exec_driver_sql(
            "INSERT INTO accounts (id, handle, status, auto_create_repositories, created_at)"
            " VALUES ('a', 'dev', 'active', true, 0)"
        )
        connection.exec_driver_sql(
            "INSERT INTO repositories (id, account_id, name, tag_mutability, source, created_at,"
            " updated_at) VALUES ('r', 'a', 'x', 'mutable', 'user', 0, 0)"
        )
    with migration_connection(url) as connection:
        operations = Operations(MigrationContext.configure(connection))
        with operations.batch_alter_table("accounts", recreate="always") as batch:
            batch.alter_column("handle", nullable=False)
    with migration_connection(url) as connection:
        held = connection.exec_driver_sql("SELECT count(*) FROM repositories").scalar()
        assert held == 1
    with (
        pytest.raises(ValueError, match="without its parent"),
        migration_connection(url) as connection,
    ):
        connection.exec_driver_sql("DELETE FROM accounts")

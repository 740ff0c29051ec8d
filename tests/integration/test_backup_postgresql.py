"""Backups of PostgreSQL: one snapshot of what is ours, no password shown, refused where unfit."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cloudcore.errors import Unavailable
from registry.backup import postgresql, programs, restoring
from registry.backup.catalog import write_catalog
from registry.backup.objects import CopyProgress
from registry.backup.taking import BackupOptions, take_backup
from registry.blobstore.disk.store import FilesystemStore
from registry.cli.server.existing_data import prepare_existing
from registry.composition.main import prepare
from registry.composition.unfinished_restoration import MARK
from registry.metadata.database import migrate
from registry.settings.settings import Settings
from registry.settings.texts import SettingsError
from tests.databases import create_database, drop_database
from tests.fault.collected import push_image
from tests.inprocess import Registry
from tests.integration.backup_world import LATER, LAYER, Site, on_postgresql, pulled, pushed, site

__all__ = ["site"]

pytestmark = [
    pytest.mark.usefixtures("no_settings"),
    pytest.mark.postgresql,
]

IN_SCHEMA = "?options=-csearch_path%3Dreg"
OTHERS = """
CREATE TABLE others AS SELECT 1 AS number;
CREATE VIEW other_view AS SELECT 1 AS one;
CREATE FUNCTION other_function() RETURNS integer LANGUAGE sql AS 'SELECT 1'
"""


@pytest.fixture
def in_schema(postgresql_url: str, tmp_path: Path) -> Iterator[Site]:
    """Return a registry in a schema of its own, in which others have things too."""
    urls = [create_database(postgresql_url, "template0") for _ in range(2)]
    for url in urls:
        execute(url, "CREATE SCHEMA reg")
    used, empty = (f"{url}{IN_SCHEMA}" for url in urls)
    migrate(used)
    execute(used, OTHERS)
    execute(urls[1], OTHERS)  # in public, where they are in nobody's way
    (tmp_path / "schema").mkdir()
    yield Site(tmp_path / "schema", None, used, empty)
    for url in urls:
        drop_database(url)


def execute(url: str, commands: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(commands.encode())


def names_in(url: str, schema: str) -> set[str]:
    """Return the names of the relations and functions of a schema."""
    query = b"""
        SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace
        UNION SELECT proname FROM pg_proc WHERE pronamespace = %s::regnamespace
    """
    with psycopg.connect(url) as connection:
        return {row[0] for row in connection.execute(query, [schema, schema])}


def test_what_is_ours_comes_back_in_its_schema_and_nothing_else(in_schema: Site) -> None:
    in_schema.serve(pushed(LAYER), in_schema.data)
    assert in_schema.back_up() == 0
    assert in_schema.restore() == 0
    used, empty = (in_schema.urls[each] for each in (in_schema.data, in_schema.restored))
    others = {"others", "other_view", "other_function"}
    assert names_in(empty, "reg") == names_in(used, "reg") - others
    assert names_in(empty, "public") == others
    assert filled(used) - {"others"} == filled(empty)
    in_schema.serve(pulled(LAYER), in_schema.restored)


def filled(url: str) -> set[str]:
    """Return the names of the tables that have rows, in the schema of the URL."""
    tables = b"SELECT relname FROM pg_class WHERE relkind = 'r' AND pg_table_is_visible(oid)"
    with psycopg.connect(url) as connection:
        return {
            name
            for (name,) in connection.execute(tables).fetchall()
            if not name.startswith("pg_")
            and connection.execute(f'SELECT FROM "{name}" LIMIT 1'.encode()).fetchone() is not None
        }


@on_postgresql
def test_dump_and_catalog_are_of_one_moment(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else the dump would name blobs that were not copied."""

    async def use(registry: Registry, _: FilesystemStore) -> None:
        loop = asyncio.get_running_loop()
        await push_image(registry, LAYER)

        def writing(raw: psycopg.Connection, path: Path) -> None:
            write_catalog(raw, path)
            asyncio.run_coroutine_threadsafe(push_image(registry, LATER), loop).result()

        monkeypatch.setattr("registry.backup.postgresql.write_catalog", writing)
        options = (lambda _: None, BackupOptions())
        await asyncio.to_thread(take_backup, site.settings, site.target, *options)

    site.serve(use, site.data)
    assert site.manifest().objects == 2
    assert site.restore() == 0
    assert "2 blobs and 1 manifests checked: 0 violations" in capsys.readouterr().out
    site.serve(pulled(LAYER), site.restored)


@on_postgresql
def test_no_transaction_is_open_while_blobs_are_copied(site: Site) -> None:
    """It would keep PostgreSQL from cleaning up for hours."""
    site.serve(pushed(LAYER), site.data)
    seen: list[int] = []

    def tell(progress: CopyProgress) -> None:
        if progress.stage == "blobs":
            with psycopg.connect(site.urls[site.data]) as connection:
                found = connection.execute(
                    "SELECT count(*) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                    " AND backend_type = 'client backend' AND xact_start IS NOT NULL"
                ).fetchone()
            assert found is not None
            seen.append(found[0])

    take_backup(site.settings, site.target, tell, BackupOptions())
    assert seen == [0, 0]


@on_postgresql
def test_a_password_is_no_argument_of_a_program(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[list[str], dict[str, str] | None]] = []

    def starting(command: list[str], **options: Any) -> object:  # noqa: ANN401 - of Popen
        started.append((command, options.get("env")))
        return popen(command, **options)

    site.serve(pushed(LAYER), site.data)
    for place, url in site.urls.items():
        site.urls[place] = url.replace("postgres@", "postgres:hush-hush@")
    popen: Callable[..., object] = subprocess.Popen
    monkeypatch.setattr("subprocess.Popen", starting)
    assert site.back_up() == 0
    assert site.restore() == 0
    own = [(command, env) for command, env in started if "pg_" in command[0] and env]
    assert [Path(command[0]).name for command, _ in own] == ["pg_dump", "pg_restore", "pg_restore"]
    for command, environment in own:
        assert "hush" not in " ".join(command)
        assert environment["PGPASSWORD"] == "hush-hush"
    assert all(
        b"hush-hush" not in each.read_bytes() for each in site.target.rglob("*") if each.is_file()
    )


@on_postgresql
def test_programs_that_are_missing_or_too_old_are_named(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site.serve(pushed(LAYER), site.data)
    monkeypatch.setattr(programs, "_FOLDERS", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    assert site.back_up() == 1
    told = capsys.readouterr().err
    assert "this takes pg_dump of PostgreSQL" in told
    assert "and none is installed: install the client programs" in told
    assert told.count("\n") == 1
    old = tmp_path / "pg_dump"
    old.write_text("#!/bin/sh\necho 'pg_dump (PostgreSQL) 9.6.24'\n")
    old.chmod(0o755)
    assert site.back_up() == 1
    assert "or later, and only 9 is installed" in capsys.readouterr().err
    assert {each.name for each in site.target.iterdir()} == {"backup.lock", "objects", "pieces"}
    monkeypatch.undo()
    assert site.back_up() == 0
    monkeypatch.setattr(programs, "_FOLDERS", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    assert site.restore() == 1
    assert "this takes pg_restore of PostgreSQL" in capsys.readouterr().err
    assert not site.restored.exists()


@on_postgresql
def test_a_program_that_fails_leaves_no_dump_and_says_why(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site.serve(pushed(LAYER), site.data)
    real = programs.find_program("pg_dump", 1).path
    failing = tmp_path / "pg_dump"
    failing.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && exec {real} --version\n'
        "head -c 100000 /dev/zero\necho 'the connection is gone' >&2\nexit 1\n"
    )
    failing.chmod(0o755)
    monkeypatch.setattr(programs, "_FOLDERS", ())
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert site.back_up() == 1
    assert "pg_dump failed with status 1: the connection is gone" in capsys.readouterr().err
    assert {each.name for each in site.target.iterdir()} == {"backup.lock", "objects", "pieces"}


@on_postgresql
def test_no_node_makes_tables_where_a_restoration_has_begun(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site.push_and_back_up()
    empty, other = site.urls[site.restored], tmp_path / "other"
    other.mkdir()
    node = Settings(data=other, database_url=empty)
    with pytest.raises(SettingsError, match="there is no account"):
        prepare_existing(node)
    assert names_in(empty, "public") == set()

    with monkeypatch.context() as dying:
        dying.setattr(restoring, "copy_objects", _fail)
        assert site.restore() != 0
    with pytest.raises(SettingsError, match="is being restored, or its restoration was"):
        prepare(node)
    assert names_in(empty, "public") == {MARK}
    migrate(empty)  # as a program does that does not know the mark
    capsys.readouterr()
    assert site.restore() == 2
    assert "the database has tables already, such as access_keys" in capsys.readouterr().err
    execute(empty, "DROP SCHEMA public CASCADE")
    execute(empty, "CREATE SCHEMA public")
    with monkeypatch.context() as dying:
        dying.setattr(postgresql, "forget_mark", _fail)
        assert site.restore() != 0
    assert site.restore() == 0
    prepare(Settings(data=site.restored, database_url=empty))
    site.serve(pulled(LAYER), site.restored)


def _fail(*_arguments: object, **_options: object) -> None:
    raise Unavailable("the machine was switched off")


@on_postgresql
def test_a_restoration_into_another_database_than_an_empty_one_is_refused(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.serve(pushed(LAYER), site.data)
    used, empty = site.urls[site.data], site.urls[site.restored]
    assert site.back_up() == 0
    for url, reason in (
        (used, "the database has tables already, such as access_keys"),
        ("", "the backup is of PostgreSQL: name an empty database"),
        (f"{empty}{IN_SCHEMA}", "the backup is of the schema 'public', and new tables of this"),
    ):
        site.urls[site.restored] = url
        assert site.restore() == 2
        assert reason in capsys.readouterr().err
        assert not site.restored.exists()
    site.urls[site.restored] = empty
    execute(empty, "CREATE TABLE somebodys (number integer)")
    assert site.restore() == 2
    assert "such as somebodys" in capsys.readouterr().err
    assert names_in(empty, "public") == {"somebodys"}
    catalog = site.target / site.manifest().database.readable
    catalog.write_bytes(catalog.read_bytes() + b"?")
    execute(empty, "DROP TABLE somebodys")
    assert site.restore() == 2
    assert "its SHA-256 is not the one" in capsys.readouterr().err


@on_postgresql
def test_a_database_of_another_version_of_the_program_is_not_backed_up(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.serve(pushed(LAYER), site.data)
    execute(site.urls[site.data], "UPDATE alembic_version SET version_num = '0000'")
    assert site.back_up() == 2
    assert "the database is at revision 0000, and this program makes" in capsys.readouterr().err


@on_postgresql
def test_a_backup_of_sqlite_is_not_restored_beside_postgresql(
    site: Site, tmp_path: Path, migrated_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other").mkdir()
    other = Site(tmp_path / "other", migrated_file)
    other.serve(pushed(LAYER), other.data)
    assert other.back_up() == 0
    site.target = other.target
    assert site.restore() == 2
    assert "the backup is of SQLite, and ENTREPOT_DATABASE_URL names" in capsys.readouterr().err

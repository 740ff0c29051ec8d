"""Migrated, empty databases of both kinds, a fresh one for each test."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

import psycopg
import pytest
from sqlalchemy import bindparam, text

from cloudcore.db.base import Connection, Database
from cloudcore.db.opening import open_database
from cloudcore.db.statement import Statement
from cloudcore.identity.tables import accounts
from registry.metadata.database import migrate
from tests.loaded import ROOT as ROOT  # noqa: PLC0414 - tests import both from here, too
from tests.loaded import program_environment as program_environment  # noqa: PLC0414
from tests.postgresql_rows import Rows, put_back, rows_of

T = TypeVar("T")

on_both_databases = pytest.mark.usefixtures("database_url")
"""A test with this mark runs on SQLite, then on PostgreSQL: `metadata_url` is `database_url`."""

_ADD_ACCOUNT: Final = Statement(
    accounts.insert().values(
        id=bindparam("id"),
        handle=bindparam("handle"),
        status=text("'active'"),
        auto_create_repositories=text("true"),
        created_at=text("0"),
    )
)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def database_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of a migrated, empty database: SQLite, then PostgreSQL."""
    url: str = request.getfixturevalue(f"{request.param}_database")
    return url


@pytest.fixture
def metadata_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of the database that the test asks for, by mark or by name; else of SQLite."""
    asked = {"database_url", "postgresql_database"} & set(request.fixturenames)
    url: str = request.getfixturevalue(asked.pop() if asked else "sqlite_database")
    return url


@pytest.fixture
async def database(metadata_url: str) -> AsyncIterator[Database]:
    """Return the database at `metadata_url`, open."""
    async with opened(metadata_url) as database:
        yield database


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def bare_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return the URL of a database without tables; on SQLite, without a file."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/bare.db"
    else:
        url = create_database(request.getfixturevalue("postgresql_url"), "template0")
        yield url
        drop_database(url)


@pytest.fixture
def sqlite_database(migrated_file: Path, tmp_path: Path) -> str:
    """Return the URL of a migrated SQLite database."""
    shutil.copy(migrated_file, tmp_path / "metadata.db")
    return f"sqlite:///{tmp_path}/metadata.db"


@pytest.fixture(scope="session")
def postgresql_server(postgresql_url: str) -> Iterator[Callable[[], psycopg.Connection]]:
    """Return what connects to the server, in none of the databases of tests, when it must."""
    connection = psycopg.connect(postgresql_url, autocommit=True)

    def connected() -> psycopg.Connection:
        nonlocal connection
        if connection.closed:  # a test has ended it
            connection = psycopg.connect(postgresql_url, autocommit=True)
        return connection

    yield connected
    connection.close()


@pytest.fixture
def postgresql_database(
    postgresql_url: str,
    postgresql_server: Callable[[], psycopg.Connection],
    migrated_template: str,
) -> Iterator[str]:
    """Return the URL of a migrated PostgreSQL database, which another test may have emptied."""
    url = _EMPTIED.pop() if _EMPTIED else create_database(postgresql_url, migrated_template)
    yield url
    try:
        is_emptied = put_back(url, _rows_of_template(postgresql_url, migrated_template))
        _EMPTIED.extend([_renamed(url, postgresql_server())] if is_emptied else [])
    except psycopg.Error:  # nobody may connect to it, or somebody does again and again
        is_emptied = False
    if not is_emptied:
        drop_database(url)


_EMPTIED: Final[list[str]] = []
"""The databases of this process that are as they were made."""


def _renamed(url: str, connection: psycopg.Connection) -> str:
    """Give a database another name, so that what a test has left does not find it; return its URL.

    Raises:
        psycopg.Error: somebody is connected.

    """
    server, _, name = url.rpartition("/")
    new = f"test_{uuid.uuid4().hex}"
    connection.execute(f'ALTER DATABASE "{name}" RENAME TO "{new}"'.encode())
    return f"{server}/{new}"


@cache
def _rows_of_template(server: str, template: str) -> Rows:
    return rows_of(f"{server.rpartition('/')[0]}/{template}")


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the file that `sqlite_database` copies."""
    path = tmp_path_factory.mktemp("migrated") / "metadata.db"
    path.write_bytes(_migrated())
    return path


@cache
def _migrated() -> bytes:
    """Return the content of a migrated SQLite file: to make one takes most of a second."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metadata.db"
        migrate(f"sqlite:///{path}")
        return path.read_bytes()


def planted(data: Path) -> Path:
    """Make a data folder with no more in it than an empty database, and return it.

    Whoever opens it has nothing to migrate. What a start makes of nothing, other tests prove.
    """
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    (data / "metadata.db").write_bytes(_migrated())
    return data


@pytest.fixture(scope="session")
def migrated_template(postgresql_url: str) -> str:
    """Make the database that `postgresql_database` copies."""
    url = create_database(postgresql_url, "template0")
    migrate(url)
    return url.rpartition("/")[2]


def create_database(server: str, template: str, name: str = "") -> str:
    """Create a database that by itself sorts by language, not by byte, and return its URL.

    `server` is the URL of any database of the server, also of one that was dropped.
    """
    name = name or f"test_{uuid.uuid4().hex}"
    language = "ENCODING 'UTF8' LOCALE 'C' LOCALE_PROVIDER icu ICU_LOCALE 'en-US'"
    # Files are copied in half the time that it takes to log their pages, and dropped so as well.
    how = f'TEMPLATE "{template}" STRATEGY FILE_COPY {language}'
    server = server.rpartition("/")[0]
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" {how}'.encode())
    return f"{server}/{name}"


def drop_database(url: str) -> None:
    """Drop a database of `create_database`, whoever may be connected."""
    server, _, name = url.rpartition("/")
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Database]:
    """Open the database at `url`, and close it at the end."""
    database = open_database(url)
    try:
        yield database
    finally:
        await database.close()


def with_database(url: str, scenario: Callable[[Database], Awaitable[T]]) -> T:
    """Open the database at `url` on a new event loop, play `scenario` and close it."""

    async def play() -> T:
        database = open_database(url)
        try:
            return await scenario(database)
        finally:
            await database.close()

    return asyncio.run(play())


def add_account(connection: Connection, handle: str) -> str:
    """Insert an account and return its id."""
    identity = str(uuid.uuid4())
    connection.execute(_ADD_ACCOUNT, id=identity, handle=handle)
    return identity


def program(module: str, *arguments: str) -> list[str]:
    """Return the command that runs `module` of the tests in another process."""
    return [sys.executable, "-m", module, *arguments]


def lose_commits(url: str) -> None:
    """Let the server end each session that inserts an account, amid its commit."""
    with psycopg.connect(url) as connection:
        connection.execute(
            "CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$"
        )
        connection.execute(
            "CREATE CONSTRAINT TRIGGER lose AFTER INSERT ON accounts"
            " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION lose()"
        )

"""Servers elsewhere of PostgreSQL 16 and 17 are looked at, copied, restored and proved.

Debian has 15 alone: `tests.newer_postgresql` runs these with the others, which it gets by pip.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from cloudcore.clock import uuid7
from cloudcore.databases.archive.driver import BackupProgramMissing, RegisteredEndpoint
from cloudcore.databases.backups import restore
from cloudcore.databases.clusters.endpoints import server_version
from cloudcore.databases.needs import DatabaseNeeds, DatabaseTerms
from cloudcore.databases.servers.bubblewrap import BubblewrapServers, Listening
from cloudcore.databases.servers.driver import ServerSpec
from cloudcore.events import NO_EVENTS
from cloudcore.keyring import Keyring
from cloudcore.nodes.node import Node
from tests.archive_world import (
    PASSWORD,
    ArchiveWorld,
    OwnAuthority,
    Server,
    open_archive_world,
    start_restored,
)
from tests.postgresql import DEBIAN, free_port
from tests.tools import missing, require_tool

pytestmark = pytest.mark.timeout(180)
FIRST_UID: Final = 290_000
_SEEN: Final = "SELECT count(*), md5(string_agg(things::text, ',' ORDER BY n)) FROM things"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    if os.geteuid() != 0:
        missing("root, who gives servers users of their own")
    require_tool("bwrap")
    with tempfile.TemporaryDirectory(prefix="versions-") as name:
        made = Path(name)
        made.chmod(0o711)
        yield made


@pytest.fixture(scope="module")
async def world(folder: Path) -> AsyncIterator[ArchiveWorld]:
    def nowhere(_target: object) -> Any:  # noqa: ANN401 - a place
        raise AssertionError("no server is run here")

    async with open_archive_world(folder, nowhere) as made:
        yield made


def _has(version: int) -> bool:
    """Return True if a server can be run, and a program of its version or a newer one copies it."""
    copying = [int(each.parts[-3]) for each in DEBIAN.glob("[0-9][0-9]/bin/pg_basebackup")]
    return (DEBIAN / str(version) / "bin/postgres").exists() and max(copying) >= version


def _needs(world: ArchiveWorld, folder: Path, port: int) -> DatabaseNeeds:
    return DatabaseNeeds(
        database=world.needs.database,
        clock=world.needs.clock,
        new_id=lambda: uuid7(world.needs.clock()),
        node=Node("versions", folder),
        servers=BubblewrapServers(folder / "databases", Listening("127.0.0.1", port, FIRST_UID)),
        archive=world.archives,
        authority=OwnAuthority(),
        keyring=Keyring(b"k" * 32),
        events=NO_EVENTS,
        terms=DatabaseTerms(first_port=port, last_port=port),
    )


@pytest.mark.parametrize(
    ("version", "has_checksums"), [(16, True), (16, False), (17, True), (17, False)]
)
async def test_a_server_of_a_newer_version_is_looked_at_copied_restored_and_proved(
    world: ArchiveWorld, folder: Path, version: int, *, has_checksums: bool
) -> None:
    if not _has(version):
        pytest.skip(f"this machine has no programs of PostgreSQL {version}")
    server = Server(folder / f"server-{version}-{has_checksums}", DEBIAN / str(version) / "bin")
    server.make(has_checksums=has_checksums)
    server.start()
    try:
        server.sql(
            "CREATE TABLE things AS SELECT n, md5(n::text) AS said FROM generate_series(1, 5000) n"
        )
        quoted = PASSWORD.replace("'", "''")
        server.sql(f"CREATE ROLE copier LOGIN REPLICATION PASSWORD '{quoted}'")
        endpoint = RegisteredEndpoint("127.0.0.1", server.port, "copier", PASSWORD, server.ca)
        loopback = [ip_network("127.0.0.0/8")]
        assert await server_version(endpoint, "postgres", loopback) == version
        target, backup_id = world.target(endpoint)._replace(version=version), uuid7()
        world.archives.check(target)
        with pytest.raises(BackupProgramMissing, match="no incremental backups"):
            world.archives.check(target, "incremental")
        made = await world.archives.back_up(target, backup_id, "base", lambda _percent: None)
        seen = server.sql(_SEEN)
    finally:
        server.stop()
    port = free_port()
    needs = _needs(world, folder, port)
    servers, copy = needs.servers, ServerSpec(needs.new_id(), version, 2048, 2000, 1024, port)
    assert servers is not None
    try:
        await restore.restore(needs, target, copy, made.label, None)
        await start_restored(needs, copy)
        with psycopg.connect(
            host=str(servers.paths(copy).socket_folder),
            port=port,
            user="entrepot",
            dbname="postgres",
        ) as session:
            assert session.execute(_SEEN.encode()).fetchall() == seen
        assert await servers.check_data(copy) == ("checksums" if has_checksums else "rows")
    finally:
        await servers.remove(copy.id, at_once=True)


async def test_what_is_missing_for_a_newer_server_is_named(world: ArchiveWorld) -> None:
    newer = 1 + max(int(each.name) for each in DEBIAN.glob("[0-9][0-9]"))
    endpoint = RegisteredEndpoint("127.0.0.1", 5432, "copier", PASSWORD, None)
    target = world.target(endpoint)._replace(version=newer)
    with pytest.raises(BackupProgramMissing, match=f"pg_basebackup of PostgreSQL {newer} or newer"):
        world.archives.check(target)

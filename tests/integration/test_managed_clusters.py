"""A cluster that is run here, with all that is real: its server, its certificate, its watch."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest

from cloudcore.certificate.embedded import EmbeddedAuthority
from cloudcore.clock import uuid7
from cloudcore.databases.clusters.cluster import Cluster
from cloudcore.databases.needs import DatabaseTerms
from cloudcore.databases.servers.bubblewrap import BubblewrapServers, Listening
from cloudcore.databases.servers.watch import ServerWatch
from cloudcore.nodes import detached_process
from registry.composition.adapters import InstallAuthority
from tests.cluster_world import PASSWORD, World, open_world
from tests.integration.oauth_world import World as Identity
from tests.postgresql import free_port
from tests.program_world import groups_named
from tests.tools import missing, require_tool

pytestmark = pytest.mark.timeout(180)
FIRST_UID = 280_000


@pytest.fixture
def folder() -> Iterator[Path]:
    if os.geteuid() != 0:
        missing("root, who gives servers users of their own")
    for program in ("bwrap", "unshare", "setpriv"):
        require_tool(program)
    made = Path(tempfile.mkdtemp(prefix="clusters-"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
async def world(oauth: Identity, folder: Path) -> AsyncIterator[World]:
    oauth.now = time.time_ns() // 1000  # certificates are looked at by the machine's clock
    made = await open_world(oauth)
    port = free_port()
    made.terms = DatabaseTerms(first_port=port, last_port=port + 1)
    embedded = EmbeddedAuthority(
        made.database,
        lambda: oauth.now,
        lambda: uuid7(oauth.now),
        oauth.keyring,
        "http://localhost",
    )
    made.authority = InstallAuthority(made.database, embedded)
    servers = BubblewrapServers(folder / "databases", Listening("127.0.0.1", port, FIRST_UID))
    made.servers = servers
    made.restart()
    yield made
    for each in await servers.seen():
        await servers.remove(each, at_once=True)


async def until_active(world: World, cluster: Cluster, watch: ServerWatch | None = None) -> Cluster:
    for _ in range(20):
        if watch is not None:
            await watch.turn()
        await world.look(2)
        found = await world.get(cluster)
        if found.status == "active":
            return found
    raise AssertionError(found)


def said(cluster: Cluster, roots: Path, statement: str, password: str = PASSWORD) -> object:
    assert cluster.ca is not None
    roots.write_text(cluster.ca)
    with psycopg.connect(
        host=cluster.host,
        port=cluster.port,
        dbname="main",
        user="admin",
        password=password,
        sslmode="verify-full",
        sslrootcert=str(roots),
        autocommit=True,
    ) as session:
        done = session.execute(statement)
        return done.fetchall() if done.description else None


def left(folder: Path, cluster: Cluster) -> list[str]:
    """Return what there is of a cluster, and of others, on the machine."""
    groups = groups_named(f"entrepot-database-{cluster.id}")
    return [*(each.name for each in (folder / "databases").iterdir()), *map(str, groups)]


async def test_a_cluster_lives_dies_recovers_and_goes(
    world: World, folder: Path, tmp_path: Path
) -> None:
    roots = tmp_path / "roots.pem"
    # Files of tests may lie in memory, and count as the server's that writes them.
    found = await until_active(world, await world.create(memory_mb=2048))
    said(found, roots, "CREATE TABLE kept AS SELECT 9 AS a")
    watch = ServerWatch(world.needs, world.servers)
    await watch.turn()
    assert (await world.get(found)).faults == ()

    kept = detached_process.find(folder / "databases" / found.id)
    assert kept is not None
    kept.signal(signal.SIGKILL)
    assert kept.wait(30)
    await watch.turn()
    assert (await world.get(found)).status == "unavailable"
    await until_active(world, found, watch)
    assert said(found, roots, "SELECT a FROM kept") == [(9,)]

    await world.reset(found, "another-password")
    await world.settle(2, 2)
    assert said(found, roots, "SELECT a FROM kept", "another-password") == [(9,)]
    with pytest.raises(psycopg.OperationalError):
        said(found, roots, "SELECT 1")

    shown = folder / "databases" / found.id / "conf/server.pem"
    before = shown.read_bytes()
    os.utime(shown, (0, 0))  # it is of long ago
    await watch.turn()
    assert shown.read_bytes() != before
    found = await world.get(found)
    assert said(found, roots, "SELECT a FROM kept", "another-password") == [(9,)]

    await world.delete(found)
    await world.settle(4, 2)
    assert await world.find(found) is None
    assert left(folder, found) == [".graves"]

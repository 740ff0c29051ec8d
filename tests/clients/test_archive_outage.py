"""The archive of a managed cluster is away for an hour: nothing stops, nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.databases.archive.bucket_archive import BucketArchive
from cloudcore.databases.archive.driver import BackupTarget, archive_command
from cloudcore.databases.archive.pgbackrest import ServerPlace
from cloudcore.databases.archive.s3_bridge import Bridge, S3Address
from cloudcore.databases.archive.wal_watch import WalWatch
from cloudcore.databases.backups import restore
from cloudcore.databases.clusters import clusters, states
from cloudcore.databases.clusters.cluster import ARCHIVE_FAILING, Cluster
from cloudcore.databases.clusters.rows import CLUSTERS
from cloudcore.databases.clusters.workflow import WORK
from cloudcore.databases.needs import DatabaseNeeds, DatabaseTerms
from cloudcore.databases.servers import data_folders, postgres
from cloudcore.databases.servers.bubblewrap import BubblewrapServers, Listening
from cloudcore.databases.servers.driver import ServerSpec
from cloudcore.events import NO_EVENTS
from cloudcore.keyring import Keyring
from cloudcore.nodes import rows as node_rows
from cloudcore.nodes.node import Node
from tests.archive_world import ArchiveWorld, OwnAuthority, open_archive_world, start_restored
from tests.jobs import run_due
from tests.postgresql import free_port
from tests.tools import missing, require_tool
from tests.waiting import close_server, turns, until_so

pytestmark = pytest.mark.timeout(300)
FIRST_UID: Final = 285_000
MOST_FILES: Final = 4
"""That wait in the spool in this test, each of 16 MiB."""
MIB: Final = 1 << 20
HOUR: Final = 3600
_SEEN: Final = "SELECT count(*), md5(string_agg(n::text, ',' ORDER BY n)) FROM things"


class Way:
    """The way to the S3 endpoint, which can be shut: then who dials it is refused."""

    def __init__(self, to: int) -> None:
        self.port = free_port()
        self._to = to
        self._server: asyncio.Server | None = None
        self._passing = set[asyncio.Task[None]]()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def shut(self) -> None:
        if self._server is not None:
            await close_server(self._server)
        for each in self._passing:
            each.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)
        await turns()

    async def _accept(self, near: asyncio.StreamReader, to_near: asyncio.StreamWriter) -> None:
        try:
            far, to_far = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            to_near.close()
            return
        for source, target in ((near, to_far), (far, to_near)):
            task = asyncio.create_task(self._pass(source, target))
            self._passing.add(task)
            task.add_done_callback(self._passing.discard)

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(1 << 16):
                target.write(data)
                await target.drain()
        except OSError:
            pass
        finally:
            target.close()


class Shop:
    """A machine with one cluster, whose clock the test moves."""

    def __init__(self, world: ArchiveWorld, way: Way, folder: Path) -> None:
        self.world, self.way, self.passed = world, way, 0
        port = free_port()
        self.servers = BubblewrapServers(
            folder / "databases", Listening("127.0.0.1", port, FIRST_UID)
        )
        self.bridge = Bridge(S3Address("127.0.0.1", way.port, "localhost", None))
        of = world.needs, world.roles, self.bridge, folder / "archive", self._place
        made: Any = BucketArchive(*of)
        self.needs = DatabaseNeeds(
            database=world.needs.database,
            clock=lambda: world.needs.clock() + self.passed * MICROSECONDS,
            new_id=lambda: uuid7(world.needs.clock()),
            node=Node("shop-machine", folder, ("databases", "backups")),
            servers=self.servers,
            archive=made,
            authority=OwnAuthority(),
            keyring=Keyring(b"k" * 32),
            events=NO_EVENTS,
            terms=DatabaseTerms(first_port=port, last_port=port + 1),
        )
        self.watch = WalWatch(self.needs, self.servers)

    def _place(self, target: BackupTarget) -> ServerPlace:
        spec = ServerSpec(target.cluster_id, target.version, 0, 0, 0, target.port)
        paths = self.servers.paths(spec)
        return ServerPlace(paths.data, paths.user, paths.socket_folder, target.port)

    async def create(self) -> Cluster:
        """Make a cluster as a request does, and let it come about."""
        needs = self.needs
        now, made = needs.clock(), needs.new_id()
        # Nobody takes it for lost, however slow this machine is.
        claimed = now + HOUR * MICROSECONDS
        await needs.database.write(node_rows.claim, needs.node, "outage".ljust(36), claimed)
        new = Cluster(
            id=made,
            account_id=self.world.account_id,
            region="local",
            created_at=now,
            updated_at=now,
            name="shop",
            bucket="backups",
            secret=states.seal_password(needs.keyring, made, "of-the-owner"),
            memory_mb=2048,  # files of tests may lie in memory, and count as the server's
            cpu_millis=2000,
            disk_mb=1024,
        )
        await needs.database.write(clusters.create, new, needs.terms, lambda _: lambda _: None)
        kinds = [WORK.job_kind(needs, needs.node.name)]
        await run_due(needs.database, kinds, self.world.needs.clock)
        found = await self.now(new)
        assert found.status == "active", found
        return found

    async def now(self, cluster: Cluster) -> Cluster:
        found = await self.needs.database.read(CLUSTERS.find, cluster.account_id, cluster.id)
        assert found is not None
        return found

    async def fault(self, cluster: Cluster) -> str:
        """Look at the spool; return what the fault of the cluster says, if it has one."""
        await self.watch.turn()
        found = await self.now(cluster)
        assert found.status == "active"
        assert {each.code for each in found.faults} <= {ARCHIVE_FAILING}
        return found.faults[0].message if found.faults else ""

    def sql(self, spec: ServerSpec, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements; return the rows of the last one."""
        with psycopg.connect(
            host=str(self.servers.paths(spec).socket_folder),
            port=spec.port,
            user="entrepot",
            dbname="main",
            autocommit=True,
        ) as connection:
            for each in statements:
                cursor = connection.execute(each.encode())
            return cursor.fetchall() if cursor.description else []


@pytest.fixture
def folder() -> Iterator[Path]:
    if os.geteuid() != 0:
        missing("root, who gives servers users of their own")
    for program in ("pgbackrest", "bwrap", "unshare", "setpriv"):
        require_tool(program)
    with tempfile.TemporaryDirectory(prefix="outage-") as name:
        made = Path(name)
        made.chmod(0o711)
        yield made


@pytest.fixture
async def shop(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shop]:
    monkeypatch.setattr(postgres, "archive_command", partial(archive_command, most=MOST_FILES))

    def nowhere(_target: BackupTarget) -> ServerPlace:
        raise AssertionError("the world has no server")

    async with open_archive_world(folder, nowhere) as world:
        way = Way(world.s3_port)
        await way.open()
        made = Shop(world, way, folder)
        try:
            yield made
        finally:
            for each in await made.servers.seen():
                await made.servers.remove(each, at_once=True)
            await made.bridge.close()
            await way.shut()


@contextlib.asynccontextmanager
async def archiving(shop: Shop) -> AsyncIterator[None]:
    """Look at the spool again and again, as the machine does."""

    async def look() -> None:
        while True:
            await shop.watch.turn()
            await asyncio.sleep(0.05)

    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


def _switched(shop: Shop, spec: ServerSpec, number: int) -> str:
    """Write a row, and end the WAL file that it is in; return its name."""
    insert = f"INSERT INTO things VALUES ({number})"
    ((name,),) = shop.sql(spec, insert, "SELECT pg_walfile_name(pg_switch_wal())")
    return str(name)


def _numbers(names: Sequence[str]) -> Iterator[int]:
    yield from (int(each[8:16], 16) * 256 + int(each[16:24], 16) for each in names)


async def test_an_archive_that_is_away_for_an_hour_stops_nothing_and_loses_nothing(
    shop: Shop,
) -> None:
    cluster = await shop.create()
    spec, needs = states.spec_of(cluster), shop.needs
    target = states.target_of(needs.keyring, cluster)
    shop.sql(spec, "CREATE TABLE things (n int)")
    async with archiving(shop):
        made = await needs.archive.back_up(target, needs.new_id(), "base", lambda _: None)
    spool = shop.servers.paths(spec).spool

    await shop.way.shut()
    switched = [_switched(shop, spec, 0)]
    await until_so(lambda: bool([*spool.glob("0*")]), "no WAL is kept")
    assert await shop.fault(cluster) == "", "it may be a moment"
    shop.passed += 301
    words = await shop.fault(cluster)
    assert words.startswith("WAL cannot be put into the bucket; the server keeps it meanwhile: ")
    for number in range(1, 10):
        switched.append(_switched(shop, spec, number))
        if number == 5:
            of_moment = shop.sql(spec, _SEEN)
            (moment,) = shop.sql(spec, "SELECT (extract(epoch FROM now()) * 1000000)::bigint")[0]
    shop.passed += HOUR
    assert await shop.fault(cluster) == words
    shop.sql(spec, "SELECT pg_reload_conf()")  # so that it tries at once
    await until_so(
        lambda: bool(shop.sql(spec, "SELECT 1 FROM pg_stat_archiver WHERE failed_count > 0")),
        "nothing has failed",
    )
    waiting = [*spool.iterdir()]
    assert len(waiting) == MOST_FILES, "the rest is the server's own, which counts as its disk"
    size = data_folders.size_of(spool.parent)
    assert size is not None
    assert size < spec.disk_mb * MIB

    await shop.way.open()
    while shop.sql(spec, "SELECT last_archived_wal FROM pg_stat_archiver") < [(switched[-1],)]:
        shop.sql(spec, "SELECT pg_reload_conf()")  # after failures, the archiver rests for a minute
        await shop.watch.turn()
        await asyncio.sleep(0.05)
    while [*spool.glob("0*")]:
        await shop.watch.turn()
    assert await shop.fault(cluster) == ""
    came = [*_numbers(await shop.world.wal_in(target))]
    assert sorted({*came}) == [*range(came[0], came[-1] + 1)]
    assert {*_numbers(switched)} <= {*came}

    copy = spec._replace(id=needs.new_id(), port=spec.port + 1, has_archive=False)
    await restore.restore(needs, target, copy, made.label, moment)
    await start_restored(needs, copy)
    assert shop.sql(copy, _SEEN) == of_moment
    assert shop.sql(spec, _SEEN)[0][0] == 10, "writing went on"

"""Backups of a PostgreSQL in a bucket: made, lost, restored, and what goes wrong on the way."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from cloudcore.clock import uuid7
from cloudcore.databases.archive import (
    BackupFailed,
    BackupTarget,
    PushedWal,
    RegisteredEndpoint,
    restore_command,
)
from tests.archive_world import PASSWORD, ArchiveWorld, Server, open_archive_world, until
from tests.certificates import self_signed
from tests.tools import require_tool

pytestmark = pytest.mark.timeout(180)

ROWS: Final = 2000
MIB: Final = 1 << 20
_SEEN: Final = "SELECT count(*), md5(string_agg(things::text, ',' ORDER BY n)) FROM things"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Return a folder that PostgreSQL's user comes through."""
    for program in ("pgbackrest", "bwrap"):
        require_tool(program)
    with tempfile.TemporaryDirectory(prefix="entrepot-archive-") as name:
        made = Path(name)
        made.chmod(0o711)
        yield made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    """Return the server that is backed up."""
    made = Server(folder / "server")
    made.make()
    made.start()
    made.sql(
        "CREATE TABLE things AS SELECT n, md5(n::text) AS said FROM"
        f" generate_series(1, {ROWS}) AS n"
    )
    quoted = PASSWORD.replace("'", "''")
    made.sql(f"CREATE ROLE copier LOGIN REPLICATION PASSWORD '{quoted}'")
    yield made
    made.stop("immediate")


@pytest.fixture(scope="module")
async def world(folder: Path, server: Server) -> AsyncIterator[ArchiveWorld]:
    """Return what all tests share; each has a cluster, thus a repository, of its own."""
    async with open_archive_world(folder, lambda _target: server.place) as made:
        yield made


@asynccontextmanager
async def archiving(
    world: ArchiveWorld, target: BackupTarget, server: Server
) -> AsyncIterator[None]:
    """Push WAL all the while, as the watch of a machine does."""

    async def push() -> None:
        while True:
            await world.archives.push_wal(target, server.spool)
            await asyncio.sleep(0.05)

    pushing = asyncio.create_task(push())
    try:
        yield
    finally:
        pushing.cancel()
        await asyncio.gather(pushing, return_exceptions=True)


async def push_all(world: ArchiveWorld, target: BackupTarget, server: Server) -> None:
    """Have all WAL until now in the bucket."""
    (found,) = server.sql("SELECT pg_walfile_name(pg_switch_wal())")
    await until(lambda: server.sql("SELECT last_archived_wal FROM pg_stat_archiver") >= [found])
    while (pushed := await world.archives.push_wal(target, server.spool)) != PushedWal(0, None):
        assert pushed.error is None


async def test_what_was_backed_up_is_restored(
    world: ArchiveWorld, server: Server, folder: Path
) -> None:
    target, told = world.target(), list[int]()
    async with archiving(world, target, server):
        base = await world.archives.back_up(target, "first", "base", told.append)
        server.sql("INSERT INTO things SELECT -n, 'more' FROM generate_series(1, 100) n")
        incremental = await world.archives.back_up(target, "second", "incremental", told.append)
    of_incremental = server.sql(_SEEN)
    server.sql("DELETE FROM things WHERE n = 7")
    ((moment,),) = server.sql("SELECT (extract(epoch FROM now()) * 1000000)::bigint")
    of_moment = server.sql(_SEEN)
    server.sql("DELETE FROM things WHERE n = 8")
    await push_all(world, target, server)

    assert told == sorted(set(told[: told.index(100) + 1])) + told[told.index(100) + 1 :]
    first, second = await world.archives.listed(target)
    assert (first.label, first.kind, first.backup_id, first.base_label) == (
        *(base.label, "base", "first", None),
    )
    assert (second.label, second.kind, second.backup_id, second.base_label) == (
        *(incremental.label, "incremental", "second", base.label),
    )
    assert base.stored_bytes > incremental.stored_bytes > 0

    assert isinstance(moment, int)
    for label, target_time, seen in (
        (incremental.label, None, of_incremental),
        (None, moment, of_moment),
    ):
        restored = Server(folder / f"restored-{target_time}")
        recovery = await world.archives.restore(
            target,
            restored.data,
            restored.user,
            label=label,
            target_time=target_time,
            max_bytes=1000 * MIB,
        )
        assert recovery == (target_time, target_time is not None)
        restored.configure(archives=False, more=_recovery(restored, target_time))
        if recovery.uses_archive:
            restored.own("recovery.signal")
        async with world.archives.serving_wal(target, restored.data, restored.spool, restored.user):
            await asyncio.to_thread(restored.start)
            await until(restored.is_up)
        try:
            assert restored.sql(_SEEN) == seen
        finally:
            restored.stop()
            shutil.rmtree(restored.folder)


def _recovery(restored: Server, target_time: int | None) -> str:
    if target_time is None:
        return ""
    return (
        f"restore_command = '{restore_command(str(restored.spool))}'\n"
        f"recovery_target_time = '{_written(target_time)}'\nrecovery_target_action = 'promote'\n"
        "hot_standby = off\n"
    )


def _written(moment: int) -> str:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment)
    return at.isoformat(timespec="microseconds")


def registered(server: Server, **fields: str) -> RegisteredEndpoint:
    """Return the server as one that runs elsewhere."""
    made = RegisteredEndpoint("127.0.0.1", server.port, "copier", PASSWORD, server.ca)
    return made._replace(**fields)  # type: ignore[arg-type] # of texts


async def test_a_server_elsewhere_is_copied_over_tls_and_restored(
    world: ArchiveWorld, server: Server, folder: Path
) -> None:
    target, told = world.target(registered(server)), list[int]()
    backup_id = uuid7(world.needs.clock())
    made = await world.archives.back_up(target, backup_id, "base", told.append)
    seen = server.sql(_SEEN)
    (listed,) = await world.archives.listed(target)
    assert (listed.label, listed.backup_id, listed.kind) == (made.label, backup_id, "base")
    assert made.size_bytes > made.stored_bytes > 0
    assert told[-1] == 100

    restored = Server(folder / "copied")
    recovery = await world.archives.restore(
        target,
        restored.data,
        restored.user,
        label=made.label,
        target_time=None,
        max_bytes=200 * MIB,
    )
    assert not recovery.uses_archive
    restored.configure(archives=False)
    restored.start()
    try:
        assert restored.sql(_SEEN) == seen
    finally:
        restored.stop()

    await world.archives.remove(target, [made.label])
    assert await world.archives.listed(target) == []
    assert await world.keys(target) == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"password": "wrong"}, "password authentication failed"),
        ({"ca": "other"}, "certificate verify failed"),
        ({"host": "127.0.0.2"}, "does not match host name"),
        ({"host": "169.254.169.254"}, "not public"),
        ({"username": "nobody"}, "pg_hba.conf"),
    ],
)
async def test_a_copy_that_fails_says_why_and_leaves_nothing(
    world: ArchiveWorld, server: Server, folder: Path, fields: dict[str, str], words: str
) -> None:
    if fields.get("ca"):
        (folder / "other").mkdir()
        fields = {"ca": self_signed(folder / "other", "db.example.com")[0].read_text()}
    target = world.target(registered(server, **fields))
    with pytest.raises(BackupFailed, match=words) as raised:
        await world.archives.back_up(target, uuid7(world.needs.clock()), "base", _ignore)
    assert PASSWORD not in str(raised.value)
    assert await world.archives.listed(target) == []
    assert await world.keys(target) == []


def _ignore(_percent: int) -> None:
    pass


async def test_an_incremental_backup_without_a_base_is_refused(
    world: ArchiveWorld, server: Server
) -> None:
    target = world.target()
    async with archiving(world, target, server):
        with pytest.raises(BackupFailed, match="no base backup"):
            await world.archives.back_up(target, "alone", "incremental", _ignore)
    assert await world.archives.listed(target) == []


async def test_what_is_deleted_is_gone_with_what_needs_it(
    world: ArchiveWorld, server: Server
) -> None:
    target, archives = world.target(), world.archives
    async with archiving(world, target, server):
        first = await archives.back_up(target, "1", "base", _ignore)
        await archives.back_up(target, "2", "incremental", _ignore)
        third = await archives.back_up(target, "3", "base", _ignore)
        fourth = await archives.back_up(target, "4", "incremental", _ignore)
        before = await world.keys(target)
        await archives.remove(target, [first.label])
        assert [each.backup_id for each in await archives.listed(target)] == ["3", "4"]
        gone = set(before) - set(await world.keys(target))
        assert any("/archive/" in key for key in gone), "WAL from before the oldest base"
        await archives.remove(target, [fourth.label, fourth.label])
        assert [each.backup_id for each in await archives.listed(target)] == ["3"]
        await archives.remove(target, [third.label])
        assert await archives.listed(target) == []
        await archives.back_up(target, "5", "base", _ignore)
        assert [each.backup_id for each in await archives.listed(target)] == ["5"]
    await archives.remove_all(target)
    assert await world.keys(target) == []
    await archives.remove_all(target)

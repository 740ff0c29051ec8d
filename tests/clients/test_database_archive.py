"""Backups of a PostgreSQL in a bucket: made, lost, restored, and what goes wrong on the way."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from botocore.exceptions import ClientError

from cloudcore.clock import uuid7
from cloudcore.databases.archive import bucket_archive, wal
from cloudcore.databases.archive.bucket_archive import BucketArchive
from cloudcore.databases.archive.bucket_files import (
    BucketAccess,
    delete_files,
    folder_of,
    read,
    store,
    text,
)
from cloudcore.databases.archive.driver import (
    GIVEN,
    WANTED,
    BackupFailed,
    BackupTarget,
    BucketGone,
    ListedBackup,
    Recovery,
    restore_command,
)
from cloudcore.databases.archive.pgbackrest import STANZA
from cloudcore.databases.archive.wal import has_files
from cloudcore.quotas.limits import put_limit, remove_limit
from cloudcore.storage.bucket import BUCKET_BYTES
from cloudcore.storage.bucket_rows import BYTES
from tests.archive_world import (
    PASSWORD,
    SPOOL_FILES,
    ArchiveWorld,
    Server,
    archiving,
    killing,
    open_archive_world,
    push_all,
    registered,
    restored_into,
    runs_of,
)
from tests.postgresql import free_port
from tests.tools import require_tool
from tests.waiting import until_so

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


@pytest.fixture(scope="module")
async def backed_up(world: ArchiveWorld, server: Server) -> tuple[BackupTarget, ListedBackup]:
    """Return a cluster, and a backup of it, which tests leave as it is."""
    target = world.target()
    async with archiving(world, target, server):
        return target, await world.archives.back_up(target, "kept", "base", _ignore)


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
        (incremental.label, moment, of_moment),
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
        assert recovery == Recovery(target_time, uses_archive=target_time is not None)
        restored.configure(archives=False, more=_recovery(restored, target_time))
        if recovery.uses_archive:
            restored.own("recovery.signal")
        place = restored.data, restored.spool, restored.user
        async with world.archives.serving_wal(target, *place, waits=True):
            await asyncio.to_thread(restored.start)
            await until_so(restored.is_up, "the restored server is not up")
        try:
            assert restored.sql(_SEEN) == seen
        finally:
            restored.stop()
            shutil.rmtree(restored.folder)
    await world.archives.remove(target, [incremental.label, incremental.label])
    assert await world.archives.listed(target) == [first], "it goes alone"


async def test_wal_that_is_not_there_yet_is_waited_for_beside_other_restores(
    world: ArchiveWorld, server: Server, folder: Path
) -> None:
    target = world.target()
    await push_all(world, target, server)
    ((segment,),) = server.sql("SELECT pg_walfile_name(pg_current_wal_insert_lsn())")
    one, other = Server(folder / "waiting"), Server(folder / "hasty")
    wanted, given = one.spool / WANTED, one.spool / GIVEN
    async with world.archives.serving_wal(target, server.data, one.spool, one.user, waits=True):
        async with world.archives.serving_wal(target, server.data, other.spool, other.user):
            (other.spool / WANTED / str(segment)).touch()
            await until_so((other.spool / GIVEN / f"{segment}.absent").exists, "not told absent")
        # The end of its keys is not that of others.
        for name in (str(segment), "00000002.history"):
            (wanted / name).touch()
        await until_so((given / "00000002.history.absent").exists, "not told absent")
        assert not (given / f"{segment}.absent").exists()
        await push_all(world, target, server)
        await until_so((given / str(segment)).exists, "not given")
    await push_all(world, target, server)
    (lost,) = [key for key in await world.keys(target) if f"/{segment}-" in key]
    await delete_files(world.needs, world.bucket, lost)
    other_place = server.data, other.spool, other.user
    with pytest.raises(BackupFailed, match=f"has lost the WAL file {segment}, and has later"):
        async with world.archives.serving_wal(target, *other_place):
            await never_given(other.spool, str(segment))
    for each in (one, other):
        shutil.rmtree(each.folder)


async def never_given(spool: Path, segment: str) -> None:
    """Ask for WAL, and wait for it without an end."""
    (spool / WANTED / segment).touch()
    await asyncio.Event().wait()


async def test_wal_that_cannot_be_fetched_for_long_ends_the_recovery_with_the_reason(
    world: ArchiveWorld, server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bucket is away, or a program does not run: neither is taken for WAL that is not there."""
    monkeypatch.setattr(wal, "_GIVE_UP_SECONDS", 0)
    target, segment = world.target(), "000000010000000000000001"
    spool = folder / "away" / "spool"
    spool.mkdir(parents=True)
    away, bridge = world.archives_at(free_port(), lambda _target: server.place)

    async def recover(of: BucketArchive, data: Path) -> None:
        async with of.serving_wal(target, data, spool, server.user, waits=True):
            await never_given(spool, segment)

    for of, data in ((away, server.data), (world.archives, folder / "no-data")):
        with pytest.raises(BackupFailed, match="needs cannot be fetched from the bucket: "):
            await recover(of, data)
        assert [*(spool / GIVEN).iterdir()] == []
    await bridge.close()


async def test_a_backup_without_room_on_the_machine_is_not_restored(
    world: ArchiveWorld,
    backed_up: tuple[BackupTarget, ListedBackup],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target, made = backed_up
    monkeypatch.setattr(bucket_archive, "_SPARE", 1)
    with pytest.raises(BackupFailed, match="there is room for 0 here"):
        await world.archives.restore(
            target, tmp_path, None, label=made.label, target_time=None, max_bytes=1000 * MIB
        )


async def test_of_a_bucket_that_was_deleted_nothing_is_left_to_delete(world: ArchiveWorld) -> None:
    gone = world.target()._replace(bucket_id=uuid7(world.needs.clock()))
    with pytest.raises(BucketGone):
        await world.archives.listed(gone)
    await world.archives.remove_all(gone)


def _recovery(restored: Server, target_time: int | None) -> str:
    if target_time is None:
        return ""
    return (
        f"restore_command = '{restore_command(str(restored.spool))}'\n"
        f"recovery_target_time = '{_written(target_time)}'\nrecovery_target_action = 'promote'\n"
        "hot_standby = off\nrecovery_prefetch = off\n"
    )


def _written(moment: int) -> str:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment)
    return at.isoformat(timespec="microseconds")


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
        before = await world.keys(target)
        await archives.remove(target, [first.label])
        assert [each.backup_id for each in await archives.listed(target)] == ["3"]
        gone = set(before) - set(await world.keys(target))
        assert any("/archive/" in key for key in gone), "WAL from before the oldest base"
        await archives.remove(target, [third.label, third.label])
        assert await archives.listed(target) == []
        await archives.back_up(target, "5", "base", _ignore)
        assert [each.backup_id for each in await archives.listed(target)] == ["5"]
    await archives.remove_all(target)
    assert await world.keys(target) == []
    await archives.remove_all(target)


async def test_a_repository_that_cannot_be_read_is_not_taken_for_an_empty_one(
    world: ArchiveWorld, backed_up: tuple[BackupTarget, ListedBackup]
) -> None:
    (target, made), archives = backed_up, world.archives
    place, before = (world.needs, world.bucket), dict[str, bytes]()
    for name in ("backup.info", "backup.info.copy"):
        key = f"{folder_of(target.cluster_id)}backup/{STANZA}/{name}"
        before[key] = b"".join([part async for part in read(*place, key)])
        await store(*place, key, text(b"damaged"))
    with pytest.raises(BackupFailed, match="cannot read the bucket"):
        await archives.listed(target)
    with pytest.raises(BackupFailed, match="cannot read the bucket"):
        await archives.remove(target, [made.label])
    for key, content in before.items():
        await store(*place, key, text(content))
    assert await archives.listed(target) == [made]


async def test_pgbackrest_that_is_killed_is_a_fault_and_is_done_again(
    world: ArchiveWorld, server: Server, folder: Path
) -> None:
    target = world.target()

    def kill(_percent: int) -> None:
        for each in runs_of("pgbackrest", os.getpid()):
            with contextlib.suppress(ProcessLookupError):  # it was told of before
                os.kill(each, signal.SIGKILL)

    async with archiving(world, target, server):
        with pytest.raises(BackupFailed, match="pgBackRest failed: it was ended by signal 9"):
            await world.archives.back_up(target, "killed", "base", kill)
        assert await world.archives.listed(target) == []
        made = await world.archives.back_up(target, "killed", "base", _ignore)
    (listed,) = await world.archives.listed(target)
    assert listed.label == made.label
    assert await labels(world, target) == {made.label}

    into = folder / "killed"
    into.mkdir()
    shutil.chown(into, *server.user)
    async with killing("pgbackrest", "restore"):
        with pytest.raises(BackupFailed, match="pgBackRest failed: it was ended by signal 9"):
            await restored_into(world, target, into, server, made.label)
    await restored_into(world, target, into, server, made.label)
    assert (into / "PG_VERSION").exists()
    shutil.rmtree(into)


async def test_a_service_that_is_killed_leaves_nothing_that_runs_or_that_info_lists(
    world: ArchiveWorld, server: Server
) -> None:
    target = world.target()
    async with archiving(world, target, server):
        for percent in (0, 1):
            async with world.back_up_elsewhere(target, server) as (_, printed):
                done = -1
                while done < percent:
                    done = int(await printed.readline())
            await until_so(lambda: is_free(world.folder / "archive" / target.cluster_id))
            assert await world.archives.listed(target) == []
        made = await world.archives.back_up(target, "again", "base", _ignore)
        assert [each.backup_id for each in await world.archives.listed(target)] == ["again"]
    assert await labels(world, target) == {made.label}


async def test_a_full_bucket_is_a_fault_until_there_is_room(
    world: ArchiveWorld, server: Server
) -> None:
    target, database = world.target(), world.needs.database
    await push_all(world, target, server)
    used = (await database.read(BYTES.read, world.account_id)).used
    await database.write(put_limit, world.account_id, BUCKET_BYTES.name, used, 1)
    try:
        server.sql("INSERT INTO things SELECT -n, 'full' FROM generate_series(1, 100) n")
        server.sql("SELECT pg_switch_wal()")
        await until_so(lambda: has_files(server.spool), "no WAL")
        error = await world.archives.push_wal(target, server.spool) or ""
        (told,) = re.findall(r"^QuotaExceeded: .*", error, re.MULTILINE)
        assert "may hold" in told
        assert "x-amz-request-id" not in error
        elsewhere = world.target(registered(server))
        with pytest.raises(BackupFailed, match="may hold"):
            await world.archives.back_up(elsewhere, uuid7(world.needs.clock()), "base", _ignore)
        assert await world.keys(elsewhere) == []
    finally:
        await database.write(remove_limit, world.account_id, BUCKET_BYTES.name)
    await push_all(world, target, server)


async def test_wal_waits_while_the_bucket_is_away_and_all_of_it_comes(
    world: ArchiveWorld, server: Server
) -> None:
    target = world.target()
    await push_all(world, target, server)
    before = await world.wal_in(target)
    ((first,),) = server.sql("SELECT coalesce(last_archived_wal, '') FROM pg_stat_archiver")
    away, bridge = world.archives_at(free_port(), lambda _target: server.place)
    failures = "SELECT failed_count FROM pg_stat_archiver"
    ((failed,),) = server.sql(failures)
    for _ in range(SPOOL_FILES + 4):
        server.sql("INSERT INTO things VALUES (0, 'away')")
        server.sql("SELECT pg_switch_wal()")
    await until_so(lambda: server.sql(failures) > [(failed,)], "none failed")
    assert await away.push_wal(target, server.spool)
    await bridge.close()
    assert len(list(server.spool.iterdir())) == SPOOL_FILES

    await push_all(world, target, server)
    ((last,),) = server.sql("SELECT coalesce(last_archived_wal, '') FROM pg_stat_archiver")
    came = sorted(set(await world.wal_in(target)) - set(before))
    wanted = range(int(str(first), 16) + 1, int(str(last), 16) + 1)
    assert [int(each, 16) for each in came] == list(wanted)
    assert list(server.spool.iterdir()) == []


async def test_nothing_of_a_hostile_spool_is_followed(
    world: ArchiveWorld, server: Server, folder: Path
) -> None:
    target = world.target()
    await push_all(world, target, server)
    (folder / "secret").write_text("a secret of the machine")
    evil = server.spool / "000000010000000000000001"
    before = await world.keys(target)
    makes: tuple[Callable[[Path], None], ...] = (
        lambda path: path.symlink_to(folder / "secret"),
        Path.mkdir,
        os.mkfifo,
    )
    for make in makes:
        make(evil)
        assert await world.archives.push_wal(target, server.spool)
        if evil.is_dir():
            evil.rmdir()
        else:
            evil.unlink()
    evil = server.spool / "000000FF.history"
    evil.symlink_to("/etc/pgbackrest/pgbackrest.conf")
    assert await world.archives.push_wal(target, server.spool)
    evil.unlink()
    assert await world.keys(target) == before


async def test_a_data_folder_with_a_link_is_not_backed_up(
    world: ArchiveWorld, server: Server, folder: Path
) -> None:
    target = world.target()
    (server.data / "base" / "evil").symlink_to("/etc")
    try:
        async with archiving(world, target, server):
            with pytest.raises(BackupFailed, match="link, base/evil"):
                await world.archives.back_up(target, "1", "base", _ignore)
    finally:
        (server.data / "base" / "evil").unlink()


async def test_the_keys_of_a_run_open_its_cluster_alone_and_end_with_it(
    world: ArchiveWorld, server: Server
) -> None:
    target = world.target()
    access = BucketAccess(world.needs, world.roles)
    own = folder_of(target.cluster_id)
    for key in (own + "mine", folder_of("other") + "mine"):
        await store(world.needs, world.bucket, key, text(b"some bytes"))
    async with access.keys(target, "a-run", 900) as keys:
        boto = world.boto(keys.session)
        assert boto.get_object(Bucket="backups", Key=own + "mine")["Body"].read() == b"some bytes"
        for key in (folder_of("other") + "mine", "others"):
            with pytest.raises(ClientError, match="AccessDenied"):
                boto.get_object(Bucket="backups", Key=key)
            with pytest.raises(ClientError, match="AccessDenied"):
                boto.put_object(Bucket="backups", Key=key, Body=b"")
        with pytest.raises(ClientError, match="AccessDenied"):
            boto.delete_bucket(Bucket="backups")
    with pytest.raises(ClientError, match=r"InvalidToken|ExpiredToken|InvalidAccessKeyId"):
        boto.get_object(Bucket="backups", Key=own + "mine")
    await world.archives.remove_all(target)


def is_free(lock: Path) -> bool:
    """Return True if no run holds a lock."""
    if not lock.exists():
        return True
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


async def labels(world: ArchiveWorld, target: BackupTarget) -> set[str]:
    """Return the labels of all backups of which the bucket has files."""
    before = f"{folder_of(target.cluster_id)}backup/{STANZA}/"
    found = {key.removeprefix(before).partition("/")[0] for key in await world.keys(target)}
    return {each for each in found if each[:2] == "20" and each[-1] in "FI"}

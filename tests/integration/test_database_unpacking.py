"""Backups of registered clusters that somebody else has made: nothing leaves the folder."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import stat
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cloudcore.clock import uuid7
from cloudcore.databases.archive import bucket_archive, bucket_files
from cloudcore.databases.archive.basebackups import BaseBackups
from cloudcore.databases.archive.driver import BackupFailed, BackupTarget
from cloudcore.databases.servers import data_folders
from cloudcore.databases.servers.driver import ServerFailed
from cloudcore.storage.bucket import Bucket
from cloudcore.wire import moment_of
from tests.databases import opened
from tests.kms_world import ACME
from tests.postgresql import server_programs
from tests.storage_world import StorageWorld, open_storage_world
from tests.tools import require_tool

MOST = 10_000_000
Member = tuple[str, bytes, bytes]
"""Name, type and content, or where a link leads."""


def tar_of(*members: Member, change: Callable[[bytes], bytes] = lambda tar: tar) -> bytes:
    """Return a compressed tar; `change` is done to it before."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, kind, content in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            if kind == tarfile.REGTYPE:
                info.size = len(content)
            else:
                info.linkname = content.decode()
            tar.addfile(info, io.BytesIO(content))
    return gzip.compress(change(made.getvalue()), mtime=0)


def file(name: str, content: bytes = b"bytes") -> Member:
    return name, tarfile.REGTYPE, content


def bomb() -> bytes:
    """Return a few kilobytes that are many megabytes."""
    return tar_of(file("base/1", bytes(MOST + 1)))


async def restored(world: StorageWorld, bucket: Bucket, tar: bytes, into: Path) -> None:
    """Store a tar as if it was a backup, and restore it."""
    target = BackupTarget(uuid7(), ACME, 15, bucket.id, "registered")
    label = uuid7()
    key = f"{bucket_files.folder_of(target.cluster_id)}base/{label}.tar.gz"
    await bucket_files.store(world.needs, bucket, key, bucket_files.text(tar))
    user = (65534, 65534) if os.geteuid() == 0 else None
    if user is not None:
        await asyncio.to_thread(os.chown, into, *user)
    await BaseBackups(world.needs, ()).restore(target, into, user, label, MOST)


@pytest.mark.parametrize(
    ("tar", "words"),
    [
        (tar_of(file("../evil")), "leads elsewhere"),
        (tar_of(file("a/../../evil")), "leads elsewhere"),
        (tar_of(file("/tmp/evil")), "leads elsewhere"),
        (tar_of(("a", tarfile.SYMTYPE, b"/etc"), file("a/evil")), "neither a file nor a folder"),
        (tar_of(("a", tarfile.LNKTYPE, b"/etc/passwd")), "neither a file nor a folder"),
        (tar_of(("a", tarfile.CHRTYPE, b"")), "neither a file nor a folder"),
        (tar_of(("a", tarfile.FIFOTYPE, b"")), "neither a file nor a folder"),
        (tar_of(file("a"), file("a")), "File exists"),
        (tar_of(file("a"), file("a/b")), "damaged"),
        (tar_of(file("a"), change=lambda tar: tar[:700]), "damaged"),
        (b"no gzip at all", "damaged"),
        (tar_of(file("base/1"))[:-20], "damaged"),
        (tar_of(file("n" * 300)), "damaged"),
        (bomb(), f"more than {MOST} bytes"),
        (tar_of(file("base/1")), "manifest"),
    ],
    ids=[
        *("up", "up-later", "absolute", "link", "hard-link", "device", "pipe", "twice"),
        *("file-as-folder", "cut-tar", "no-gzip", "cut-gzip", "long-name", "bomb", "no-manifest"),
    ],
)
async def test_what_is_no_plain_backup_is_refused_and_writes_nowhere_else(
    tmp_path: Path, sqlite_database: str, tar: bytes, words: str
) -> None:
    require_tool("bwrap")
    server_programs()
    into = tmp_path / "into"
    into.mkdir()
    async with (
        opened(sqlite_database) as database,
        open_storage_world(database, tmp_path / "world") as world,
    ):
        bucket = await world.make("backups")
        before = names(tmp_path)
        with pytest.raises(BackupFailed, match=words):
            await restored(world, bucket, tar, into)
    assert names(tmp_path) == before
    assert are_plain(into)


async def test_a_note_with_a_time_that_no_answer_could_tell_lists_no_backup(
    tmp_path: Path, sqlite_database: str
) -> None:
    async with (
        opened(sqlite_database) as database,
        open_storage_world(database, tmp_path) as world,
    ):
        bucket = await world.make("backups")
        target = BackupTarget(uuid7(), ACME, 15, bucket.id, "registered")
        year_3000 = moment_of(datetime(3000, 1, 1, tzinfo=UTC))
        for ends in (year_3000, 1 << 60):
            key = f"{bucket_files.folder_of(target.cluster_id)}base/{uuid7()}.json"
            note = {"size_bytes": 1, "stored_bytes": 1, "started_at": 1, "completed_at": ends}
            text = bucket_files.text(json.dumps(note).encode())
            await bucket_files.store(world.needs, bucket, key, text)
        found = await BaseBackups(world.needs, ()).listed(target)
        assert [each.completed_at for each in found] == [year_3000]


async def test_a_backup_that_is_gone_from_its_bucket_is_no_empty_one(
    sqlite_database: str, tmp_path: Path
) -> None:
    into = tmp_path / "into"
    into.mkdir()
    async with (
        opened(sqlite_database) as database,
        open_storage_world(database, tmp_path / "store") as world,
    ):
        bucket = await world.make("backups")
        target = BackupTarget(uuid7(), ACME, 15, bucket.id, "registered")
        with pytest.raises(BackupFailed, match="the backup cannot be read: "):
            await BaseBackups(world.needs, ()).restore(target, into, None, uuid7(), MOST)
    assert names(into) == set()


def names(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


def are_plain(folder: Path) -> bool:
    """Return True if a folder has nothing but files and folders."""
    found = [each.lstat().st_mode for each in folder.rglob("*")]
    return all(stat.S_ISREG(mode) or stat.S_ISDIR(mode) for mode in found)


@pytest.mark.parametrize("ends", [True, False])
async def test_a_restore_that_fills_the_disk_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    monkeypatch.setattr(bucket_archive, "_MEASURE_SECONDS", 0.01)
    is_stopped = asyncio.Event()

    async def fill() -> None:
        await asyncio.sleep(0)
        (tmp_path / "base").write_bytes(b"x" * 1_000_000)
        try:
            if not ends:
                await asyncio.Event().wait()
        finally:
            is_stopped.set()

    with pytest.raises(BackupFailed, match="the backup has more than 1000 bytes"):
        await bucket_archive._within(1000, tmp_path, fill())
    assert is_stopped.is_set()


def test_of_restored_data_links_devices_and_settings_are_taken_away(tmp_path: Path) -> None:
    data, outside = tmp_path / "data", tmp_path / "outside"
    (data / "pg_tblspc").mkdir(parents=True)
    outside.mkdir()
    (outside / "kept").write_text("of another")
    for name in ("PG_VERSION", "postgresql.conf", "standby.signal", "pg_tblspc/1"):
        (data / name).write_text("15\n")
    (data / "pg_tblspc/2").symlink_to(outside)
    (data / "pg_wal").symlink_to(outside)
    (data / "file").symlink_to(outside / "kept")
    os.mkfifo(data / "pipe")
    with pytest.raises(ServerFailed, match="no data of PostgreSQL 14"):
        data_folders.clean(data, 14)
    assert (data / "postgresql.conf").exists()
    data_folders.clean(data, 15)
    assert {str(each.relative_to(data)) for each in data.rglob("*")} == {
        *("PG_VERSION", "pg_tblspc", "pg_tblspc/1"),
    }
    assert (outside / "kept").read_text() == "of another"
    assert (data / "PG_VERSION").stat().st_mode & 0o777 == 0o600

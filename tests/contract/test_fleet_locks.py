"""What several machines with one PostgreSQL must not do at once, with folders of their own each."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest

from cloudcore.db.base import Database
from cloudcore.db.postgresql_locks import LockLost, LockTaken, SharedLock
from registry.backup.objects import CopyProgress
from registry.backup.stores import HoldLost
from registry.backup.taking import BackupOptions, take_backup
from registry.blobstore.backups import HeldByAnother
from registry.blobstore.base import DeletionsHeld
from registry.blobstore.disk.store import FilesystemStore
from registry.blobstore.locks import FleetLocks
from registry.errors import StoreUnavailable
from registry.settings.settings import Settings
from tests.contract.blob_stores import DATA, listed, put, stored_size
from tests.databases import add_account, with_database

pytestmark = pytest.mark.postgresql

_IDLE_MILLISECONDS = 500


@pytest.fixture
def machines(postgresql_database: str, tmp_path: Path) -> Iterator[list[FilesystemStore]]:
    """Return the stores of two machines, which lack each other's locks of files."""
    with ExitStack() as opened:
        yield [
            opened.enter_context(
                closing(FilesystemStore(tmp_path / name, locks=locks_of(postgresql_database)))
            )
            for name in ("east", "west")
        ]


def locks_of(url: str) -> FleetLocks:
    return FleetLocks(url, "blobs")


def end_lock_holders(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype='advisory'"
        )


async def test_a_backup_holds_the_deletions_of_every_machine(
    machines: list[FilesystemStore], postgresql_database: str
) -> None:
    stored = [await put(each, DATA) for each in machines]
    with locks_of(postgresql_database).deletions_held(1) as held:
        for store, object_id in zip(machines, stored, strict=True):
            refused = await store.delete([object_id])
            assert not refused.object_ids
            assert isinstance(refused.refusal, DeletionsHeld)
            assert await listed(store.list_objects()) == [
                (object_id, stored_size(store, len(DATA)))
            ]
        with (
            pytest.raises(HeldByAnother),
            locks_of(postgresql_database).deletions_held(0),
        ):
            pytest.fail("two backups hold deletions")
        held.check()
    for store, object_id in zip(machines, stored, strict=True):
        assert (await store.delete([object_id])).object_ids == [object_id]


def test_a_backup_that_waits_lets_no_new_deletions_begin(
    machines: list[FilesystemStore], postgresql_database: str
) -> None:
    """Else those of many machines, one after another, would hold it off for ever."""
    has_held = threading.Event()

    def hold() -> None:
        with locks_of(postgresql_database).deletions_held(30):
            has_held.set()

    backup = threading.Thread(target=hold)
    with machines[0].files.deleting():
        backup.start()
        until_refused(machines[1])
        assert not has_held.is_set()
    backup.join(30)
    assert has_held.is_set()


def until_refused(store: FilesystemStore) -> None:
    while True:
        try:
            with store.files.deleting():
                pass
        except DeletionsHeld:
            return


async def test_one_machine_scans_for_orphans_at_a_time(machines: list[FilesystemStore]) -> None:
    east, west = machines
    async with east.scan_alone() as is_alone:
        assert is_alone
        async with west.scan_alone() as is_second:
            assert not is_second
    async with west.scan_alone() as is_alone:
        assert is_alone


def test_a_server_that_ends_idle_connections_ends_no_lock(postgresql_database: str) -> None:
    limited = f"{postgresql_database}?options=-cidle_session_timeout%3D{_IDLE_MILLISECONDS}"
    lock = SharedLock(limited, "long work")
    with lock.shared():
        time.sleep(2 * _IDLE_MILLISECONDS / 1000)
        with pytest.raises(LockTaken), lock.alone():
            pytest.fail("the lock has ended")


def test_a_backup_whose_hold_broke_says_so(postgresql_database: str, tmp_path: Path) -> None:
    with locks_of(postgresql_database).deletions_held(1) as held:
        end_lock_holders(postgresql_database)
        with pytest.raises(LockLost):
            held.check()

    def add(database: Database) -> Awaitable[str]:
        return database.write(add_account, "acme")

    with_database(postgresql_database, add)
    settings = Settings(data=tmp_path / "data", database_url=postgresql_database)
    settings.data.mkdir()
    (settings.data / "blobs").mkdir()
    target = tmp_path / "backup"

    def tell(_: CopyProgress) -> None:
        end_lock_holders(postgresql_database)

    with pytest.raises(HoldLost, match="take the backup again"):
        take_backup(settings, target, tell, BackupOptions())
    assert not (target / "backup.json").exists()
    take_backup(settings, target, lambda _: None, BackupOptions())


async def test_nothing_is_deleted_while_the_database_cannot_tell(tmp_path: Path) -> None:
    away = locks_of("postgresql://postgres@127.0.0.1:1/away")
    with closing(FilesystemStore(tmp_path, locks=away)) as store:
        object_id = await put(store, DATA)
        refused = await store.delete([object_id])
        assert isinstance(refused.refusal, StoreUnavailable)
        assert not refused.object_ids
        with pytest.raises(StoreUnavailable):
            async with store.scan_alone():
                pytest.fail("nobody told that no other machine scans")

"""The archive of a machine: pgBackRest for servers that run here, pg_basebackup for others."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from cloudcore.databases.archive import basebackups, wal
from cloudcore.databases.archive.basebackups import BaseBackups
from cloudcore.databases.archive.bucket_files import (
    BucketAccess,
    delete_files,
    find_bucket,
    folder_of,
)
from cloudcore.databases.archive.driver import (
    BackupFailed,
    BackupKind,
    BackupProgramMissing,
    BackupTarget,
    BucketGone,
    ListedBackup,
    Recovery,
)
from cloudcore.databases.archive.pgbackrest import (
    BackupRepository,
    Repositories,
    ServerPlace,
    program,
)
from cloudcore.databases.archive.s3_bridge import Bridge
from cloudcore.databases.servers.confinement import User
from cloudcore.databases.servers.data_folders import size_of
from cloudcore.iam.service_roles import ServiceRoles
from cloudcore.outbound.destinations import Network
from cloudcore.storage.needs import StorageNeeds

_MEASURE_SECONDS: Final = 1
_SPARE: Final = 0.1
"""The part of the free disk that a restore leaves to other programs of the machine."""
_PATIENCE_SECONDS: Final = 150
"""How long to wait for WAL that is not in the bucket yet: a server archives within a minute of a
change."""
Places = Callable[[BackupTarget], ServerPlace]
"""Returns the paths of a managed cluster's server on this machine."""


class BucketArchive:
    """Makes, lists, deletes and restores backups in buckets; its callers store rows about them.

    Each call may be repeated after the service was killed at any point. A failed call raises
    `BackupFailed`, or `BackupProgramMissing` if a program or a setting is missing.
    """

    def __init__(
        self,
        storage: StorageNeeds,
        roles: ServiceRoles,
        bridge: Bridge | None,
        folder: Path,
        places: Places,
        networks: Sequence[Network] = (),
    ) -> None:
        """Store the dependencies; `bridge` is None if the install has no S3 endpoint.

        `folder` is for lock files. Registered servers may be in `networks`, besides the public
        internet.
        """
        self._storage = storage
        self._base_backups = BaseBackups(storage, networks)
        self._access = BucketAccess(storage, roles)
        self._places = places
        self._repositories = None if bridge is None else Repositories(self._access, bridge, folder)

    def check(self, target: BackupTarget, kind: BackupKind = "base") -> None:
        """Raise `BackupProgramMissing` if this machine cannot make a backup of this kind."""
        if target.type == "managed":
            program()
            self._opened()
        elif kind == "incremental":
            raise BackupProgramMissing(
                "registered clusters have no incremental backups in this version: make a base"
            )
        else:
            basebackups.program(target.version, "pg_basebackup")

    async def back_up(
        self,
        target: BackupTarget,
        backup_id: str,
        kind: BackupKind,
        on_progress: Callable[[int], None],
    ) -> ListedBackup:
        """Make a backup and return it; wait first for any run that a killed service has left.

        Before calling this again for the same backup, look for `backup_id` in `listed`.
        `on_progress` is called with the percentage done, 0 to 100, ascending. The caller must push
        WAL meanwhile. An incremental backup without a base fails, and leaves no base.
        """
        self.check(target, kind)
        told = 0

        def ascending(percent: int) -> None:
            nonlocal told
            if told < percent < 100:  # at 100, WAL is still missing
                told = percent
                on_progress(percent)

        if target.type == "registered":
            made = await self._base_backups.back_up(target, backup_id, ascending)
        else:
            async with self._opened().changing(target) as repository:
                made = await repository.back_up(backup_id, kind, self._places(target), ascending)
        on_progress(100)
        return made

    async def listed(self, target: BackupTarget) -> Sequence[ListedBackup]:
        """Return the complete backups, oldest first."""
        if target.type == "registered":
            return await self._base_backups.listed(target)
        return await (await self._opened().shared(target)).backups()

    async def remove(self, target: BackupTarget, labels: Sequence[str]) -> None:
        """Delete backups and the incremental ones that need them; ignore labels that are gone."""
        if target.type == "registered":
            await self._base_backups.remove(target, labels)
            return
        async with self._opened().changing(target) as repository:
            for label in labels:
                await repository.expire(label)

    async def remove_all(self, target: BackupTarget) -> None:
        """Delete all backups and all WAL of a cluster, and the role that could access them."""
        with suppress(BucketGone):  # then nothing is left in it
            bucket = await find_bucket(self._storage, target)
            await delete_files(self._storage, bucket, folder_of(target.cluster_id))
        await self._access.forget(target)

    async def restore(
        self,
        target: BackupTarget,
        into: Path,
        user: User,
        *,
        label: str,
        target_time: int | None,
        max_bytes: int,
    ) -> Recovery:
        """Replace the content of a folder with the files of a backup.

        Return how far the server must recover. `target` is the cluster that was backed up, `label`
        names the backup, and `target_time` is when the recovery is to end (None: as soon as the
        files are consistent). The files will belong to `user`. They are untrusted: anyone who may
        write to the bucket may have changed them.

        Raise `BackupFailed` if there is no such backup, the bucket cannot be read, or the files
        have more than `max_bytes`, or more than the disk has room for.
        """
        found = [each for each in await self.listed(target) if each.label == label]
        if not found:
            raise BackupFailed("the bucket has no such backup")
        await asyncio.to_thread(_empty, into)
        most = min(max_bytes, int(shutil.disk_usage(into).free * (1 - _SPARE)))
        if found[0].size_bytes > most:
            size = found[0].size_bytes
            raise BackupFailed(f"the backup has {size} bytes, and there is room for {most} here")
        if target.type == "registered":
            await self._base_backups.restore(target, into, user, label, most)
            return Recovery(None, uses_archive=False)
        async with self._for_one_restore(target) as repository:
            await _within(most, into, repository.restore(label, ServerPlace(into, user)))
        return Recovery(target_time, uses_archive=target_time is not None)

    @asynccontextmanager
    async def serving_wal(
        self, target: BackupTarget, data: Path, spool: Path, user: User, *, waits: bool = False
    ) -> AsyncIterator[None]:
        """Serve WAL to a recovering server during the block.

        With `waits`, wait some minutes for WAL that is not in the bucket yet.
        """
        place = ServerPlace(data, user)
        async with (
            self._for_one_restore(target) as repository,
            wal.serving(repository, spool, place, _PATIENCE_SECONDS if waits else 0),
        ):
            yield

    async def push_wal(self, target: BackupTarget, spool: Path) -> str | None:
        """Move the WAL in the spool of a managed server to the bucket, oldest first.

        If a file cannot be moved, it stays for the next call: return the error. Otherwise return
        None.
        """
        if not wal.has_files(spool):
            return None
        try:
            repository = await self._opened().shared(target)
        except BackupFailed as error:
            return str(error)
        return await wal.push(repository, spool, self._places(target))

    def _for_one_restore(
        self, target: BackupTarget
    ) -> AbstractAsyncContextManager[BackupRepository]:
        """Open a repository with a session name of its own, as several restores may run at once.

        Ending a session ends all sessions with its name.
        """
        return self._opened().opened(target, f"restore-{self._storage.new_id()}")

    def _opened(self) -> Repositories:
        if self._repositories is None:
            raise BackupProgramMissing(
                "backups go through the S3 endpoint of the install, which has none: its operator"
                " sets s3_port or s3_host"
            )
        return self._repositories


def _empty(folder: Path) -> None:
    for each in folder.iterdir():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()


async def _within(most: int, folder: Path, running: Coroutine[object, object, None]) -> None:
    """Run `running`, which fills `folder`; raise `BackupFailed` once that has over `most` bytes."""
    run = asyncio.create_task(running)
    is_done = False
    try:
        while not is_done:
            is_done, begun = run.done(), time.monotonic()
            if (await asyncio.to_thread(size_of, folder) or 0) > most:
                raise BackupFailed(f"the backup has more than {most} bytes")
            # Measuring walks over all files.
            pause = max(_MEASURE_SECONDS, 10 * (time.monotonic() - begun))
            await asyncio.wait([run], timeout=pause)
        await run
    finally:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)

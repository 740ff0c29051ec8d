"""The `Archive` of a machine: pgBackRest for servers that run here, pg_basebackup for others."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from cloudcore.databases import basebackups, wal
from cloudcore.databases.archive import (
    BackupFailed,
    BackupKind,
    BackupProgramMissing,
    BackupTarget,
    Listed,
    PushedWal,
    Recovery,
    Taken,
)
from cloudcore.databases.basebackups import BaseBackups
from cloudcore.databases.bucket_access import BucketAccess
from cloudcore.databases.bucket_files import delete_files, folder_of
from cloudcore.databases.confined_runs import User
from cloudcore.databases.pgbackrest import Repositories, ServerPlace, program
from cloudcore.databases.s3_bridge import Bridge
from cloudcore.iam.service_roles import ServiceRoles
from cloudcore.outbound.addresses import Network
from cloudcore.storage.needs import StorageNeeds
from cloudcore.storage.tables import BUCKET_ROWS

_MEASURE_SECONDS: Final = 1
Places = Callable[[BackupTarget], ServerPlace]
"""Returns where the server of a managed cluster is on this machine."""


class Archives:
    """Makes, lists, deletes and restores backups; see `Archive`."""

    def __init__(
        self,
        storage: StorageNeeds,
        roles: ServiceRoles,
        bridge: Bridge | None,
        folder: Path,
        places: Places,
        networks: Sequence[Network] = (),
    ) -> None:
        """Reach the S3 endpoint by `bridge`; None: the install has none.

        `networks` are what registered servers may be in besides the public internet.
        """
        self._storage = storage
        self._base_backups = BaseBackups(storage, networks)
        self._access = BucketAccess(storage, roles)
        self._places = places
        self._repositories = None if bridge is None else Repositories(self._access, bridge, folder)

    def check(self, target: BackupTarget, kind: BackupKind = "base") -> None:
        """Look for the program and the endpoint."""
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
        self, target: BackupTarget, backup_id: str, kind: BackupKind, tell: Callable[[int], None]
    ) -> Taken:
        """Make a backup."""
        self.check(target, kind)
        if target.type == "registered":
            made = await self._base_backups.back_up(target, backup_id, tell)
        else:
            async with self._opened().changing(target) as repository:
                made = await repository.back_up(backup_id, kind, self._places(target), tell)
        tell(100)
        return Taken(
            made.label, made.size_bytes, made.stored_bytes, made.started_at, made.completed_at
        )

    async def listed(self, target: BackupTarget) -> Sequence[Listed]:
        """Return what the bucket has."""
        if target.type == "registered":
            return await self._base_backups.listed(target)
        return await (await self._opened().shared(target)).backups()

    async def remove(self, target: BackupTarget, labels: Sequence[str]) -> None:
        """Delete backups."""
        if target.type == "registered":
            await self._base_backups.remove(target, labels)
            return
        async with self._opened().changing(target) as repository:
            for label in labels:
                await repository.expire(label)

    async def remove_all(self, target: BackupTarget) -> None:
        """Delete all that the bucket has of a cluster, and the role that could read it."""
        place = target.account_id, target.bucket_id
        bucket = await self._storage.database.read(BUCKET_ROWS.find, *place)
        if bucket is not None:  # else there is nothing
            await delete_files(self._storage, bucket, folder_of(target.cluster_id))
        await self._access.forget(target)

    async def restore(
        self,
        target: BackupTarget,
        into: Path,
        user: User,
        *,
        label: str | None,
        target_time: int | None,
        max_bytes: int,
    ) -> Recovery:
        """Fill a folder with the files of a backup."""
        chosen = _chosen(await self.listed(target), label, target_time)
        if chosen.size_bytes > max_bytes:
            raise BackupFailed(f"the backup has {chosen.size_bytes} bytes: {max_bytes} have room")
        await asyncio.to_thread(_empty, into)
        if target.type == "registered":
            await self._base_backups.restore(target, into, user, chosen.label, max_bytes)
            return Recovery(None, uses_archive=False)
        async with self._opened().opened(target, f"{target.cluster_id}-restore") as repository:
            await _within(
                max_bytes, into, repository.restore(chosen.label, ServerPlace(into, user))
            )
        return Recovery(target_time, uses_archive=target_time is not None)

    @asynccontextmanager
    async def serving_wal(
        self, target: BackupTarget, data: Path, spool: Path, user: User
    ) -> AsyncIterator[None]:
        """Give a server that recovers the WAL that it asks for."""
        place = ServerPlace(data, user)
        async with (
            self._opened().opened(target, f"{target.cluster_id}-recovery") as repository,
            wal.serving(repository, spool, place),
        ):
            yield

    async def push_wal(self, target: BackupTarget, spool: Path) -> PushedWal:
        """Move what is in a spool to the bucket."""
        if not wal.has_files(spool):
            return PushedWal(0, None)
        try:
            repository = await self._opened().shared(target)
        except BackupFailed as error:
            return PushedWal(0, str(error))
        return await wal.push(repository, spool, self._places(target))

    def _opened(self) -> Repositories:
        if self._repositories is None:
            raise BackupProgramMissing(
                "backups go through the S3 endpoint of the install, which has none: its operator"
                " sets s3_port or s3_host"
            )
        return self._repositories


def _chosen(found: Sequence[Listed], label: str | None, target_time: int | None) -> Listed:
    """Return the backup of a label, or the newest that was complete at a time."""
    if label is not None:
        fits = [each for each in found if each.label == label]
    else:
        fits = [each for each in found if target_time is None or each.completed_at <= target_time]
    if not fits:
        raise BackupFailed("the bucket has no such backup" if label else "no backup is that old")
    return fits[-1]


def _empty(folder: Path) -> None:
    for each in folder.iterdir():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()


async def _within(most: int, folder: Path, running: Coroutine[object, object, None]) -> None:
    """Run what fills a folder, and end it if that gets more bytes: what is restored may lie."""
    run = asyncio.create_task(running)
    try:
        while not run.done():
            await asyncio.wait([run], timeout=_MEASURE_SECONDS)
            if await asyncio.to_thread(_measured, folder) > most:
                raise BackupFailed(f"the backup has more than {most} bytes")
        await run
    finally:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)


def _measured(folder: Path) -> int:
    return sum(
        os.lstat(Path(at, name)).st_blocks * 512
        for at, _, names in os.walk(folder)
        for name in names
    )

"""Move WAL between the spool of a server and the repository of its cluster.

The server owns its spool and may be hostile: it may put links, devices or folders there, and swap
them at any moment. So nothing in the spool is opened in place. A file is first linked into a folder
of ours, where its type is checked; files for the server are moved into the spool by a rename.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final

from cloudcore.databases.archive.driver import GIVEN, WANTED, BackupFailed
from cloudcore.databases.archive.pgbackrest import STANZA, BackupRepository, ServerPlace, checked
from cloudcore.databases.servers.confinement import ProgramResult, User
from cloudcore.databases.servers.data_folders import open_folder

_NAME: Final = re.compile(r"[0-9A-F]{24}(?:\.partial|\.[0-9A-F]{8}\.backup)?|[0-9A-F]{8}\.history")
_ABSENT: Final = 1
"""The exit status of ``archive-get`` when there is no such file."""
_SEGMENT: Final = re.compile(r"[0-9A-F]{24}")
_LOOK_SECONDS: Final = 0.1
_PAUSE_SECONDS: Final = 2
_GIVE_UP_SECONDS: Final = 300
"""A recovery fails after WAL for the server could not be fetched for this long."""
_log = logging.getLogger(__name__)
_MOST: Final = 16
"""How many files one call pushes at most, as other clusters wait for their turn."""


class WalMissing(BackupFailed):
    """The bucket has lost WAL that a recovery needs."""


async def push(repository: BackupRepository, spool: Path, place: ServerPlace) -> str | None:
    """Move at most 16 files of a spool to the repository, oldest first.

    Return why the next file could not be moved, or None if no move failed.
    """
    try:
        with open_folder(spool) as folder, _staging(spool, "pushing", place.user) as staging:
            for name in _named(folder)[:_MOST]:
                _take(folder, name, staging)
                await _push_file(repository, staging, name, place)
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)
    except (BackupFailed, OSError) as error:
        return str(error)
    return None


def has_files(spool: Path) -> bool:
    """Return True if a spool has WAL files to push; False also if it cannot be read."""
    try:
        with open_folder(spool) as folder:
            return bool(_named(folder))
    except OSError:
        return False


def has_all_of(data: Path, spool: Path) -> bool:
    """Return True if all WAL of a stopped server has been archived and pushed."""
    waiting = (data / "pg_wal" / "archive_status").glob("*.ready")
    return not has_files(spool) and next(waiting, None) is None


@asynccontextmanager
async def serving(
    repository: BackupRepository, spool: Path, place: ServerPlace, patience_seconds: float
) -> AsyncIterator[None]:
    """During the block, serve the WAL files that a recovering server requests.

    Wait up to `patience_seconds` for a segment that the repository does not have. If files cannot
    be fetched for `_GIVE_UP_SECONDS`, or the repository has lost one, cancel the block and raise
    `BackupFailed`; the server itself would wait forever.
    """
    with open_folder(spool) as folder:
        for name in (WANTED, GIVEN):
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=folder)
                if place.user is not None:
                    os.chown(name, *place.user, dir_fd=folder, follow_symlinks=False)
        try:
            async with asyncio.TaskGroup() as group:
                giving = group.create_task(
                    _give(repository, spool, folder, place, patience_seconds)
                )
                yield
                giving.cancel()
        except BaseExceptionGroup as failed:  # raised by the block or by `_give`
            raise failed.exceptions[0] from None


async def _push_file(
    repository: BackupRepository, staging: Path, name: str, place: ServerPlace
) -> None:
    async def push() -> ProgramResult:
        words = "archive-push", f"--stanza={STANZA}", f"/wal/{name}"
        return await repository.run(*words, place=place, wal=staging)

    ended = await push()
    if ended.status != 0 and "stanza-create" in ended.said:  # the error for a new repository
        await repository.create_stanza(place)
        ended = await push()
    checked(ended)


async def _give(
    repository: BackupRepository, spool: Path, folder: int, place: ServerPlace, patience: float
) -> None:
    until: dict[str, float] = {}
    """When to stop waiting for each segment, on the monotonic clock."""

    def is_waited_for(name: str) -> bool:
        now = time.monotonic()
        return bool(_SEGMENT.fullmatch(name)) and now < until.setdefault(name, now + patience)

    failing_since: float | None = None
    while True:
        try:
            if await _give_wanted(repository, spool, folder, place, is_waited_for):
                await asyncio.sleep(_PAUSE_SECONDS)
            failing_since = None
        except WalMissing:
            raise
        except (OSError, BackupFailed) as error:  # the server keeps waiting: try again
            now = time.monotonic()
            failing_since = now if failing_since is None else failing_since
            if now - failing_since >= _GIVE_UP_SECONDS:
                words = f"WAL that the server needs cannot be fetched from the bucket: {error}"
                raise BackupFailed(words) from error
            _log.warning("WAL for cluster %s: %s", repository.cluster_id, error)
            await asyncio.sleep(_PAUSE_SECONDS)
        await asyncio.sleep(_LOOK_SECONDS)


async def _give_wanted(
    repository: BackupRepository,
    spool: Path,
    folder: int,
    place: ServerPlace,
    is_waited_for: Callable[[str], bool],
) -> bool:
    """Serve the requested files; return True if some are missing that may still arrive.

    Raise `WalMissing` if the repository lacks a segment, but has later ones.
    """
    is_waiting = False
    with (
        open_folder(WANTED, folder) as wanted,
        open_folder(GIVEN, folder) as given,
        _staging(spool, "giving", place.user) as staging,
    ):
        for name in _named(wanted):
            is_there = await _fetched(repository, name, place, staging)
            if not is_there and is_waited_for(name):
                is_waiting = True
                continue
            if not is_there and (newest := await _newer_than(repository, name)):
                # Segments are archived in order: by now this one has arrived, or it never will.
                is_there = await _fetched(repository, name, place, staging)
                if not is_there:
                    raise WalMissing(
                        f"the bucket has lost the WAL file {name}, and has later ones until"
                        f" {newest}: restore to a moment before it, or the next backup"
                    )
            if is_there:
                os.rename(staging / name, name, dst_dir_fd=given)
            else:
                (staging / name).touch()
                os.rename(staging / name, f"{name}.absent", dst_dir_fd=given)
            os.unlink(name, dir_fd=wanted)
    return is_waiting


async def _fetched(
    repository: BackupRepository, name: str, place: ServerPlace, staging: Path
) -> bool:
    """Fetch a file from the repository into `staging`; return False if the repository lacks it."""
    lines: list[str] = []
    words = "archive-get", f"--stanza={STANZA}", name, f"/wal/{name}"
    ended = await repository.run(*words, place=place, wal=staging, each_line=lines.append)
    if ended.status == _ABSENT and not lines:  # bwrap also fails with 1, but prints why
        return False
    checked(ended)
    return True


async def _newer_than(repository: BackupRepository, name: str) -> str:
    """Return the newest segment if it follows `name` on the same timeline, or an empty string."""
    if not _SEGMENT.fullmatch(name):
        return ""
    newest = await repository.newest_wal()
    return newest if newest > name and newest[:8] == name[:8] else ""


@contextmanager
def _staging(spool: Path, name: str, user: User) -> Iterator[Path]:
    """Yield an empty folder, which the server cannot see, on the spool's file system."""
    folder = spool.parent / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    try:
        if user is not None:
            os.chown(folder, *user)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _named(folder: int) -> Sequence[str]:
    """Return the sorted names of WAL files in a folder, oldest first."""
    return sorted(name for name in os.listdir(folder) if _NAME.fullmatch(name))


def _take(folder: int, name: str, staging: Path) -> None:
    """Link a spool file into a folder of ours; raise `BackupFailed` if it is not a plain file."""
    os.link(name, staging / name, src_dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISREG((staging / name).lstat().st_mode):
        raise BackupFailed(f"{name} in the spool is no file: the server is not to be trusted")

"""Run the watches of this machine in one of its processes, and write the machine's heartbeat.

The process that holds the lock on the machine's folder runs the watches. The kernel releases the
lock when that process ends for any reason, and another process continues.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from cloudcore.clock import Clock, uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.errors import Conflict, PlatformError, Unavailable
from cloudcore.jobs.background import BackgroundTask, record_before_stop
from cloudcore.nodes import rows
from cloudcore.nodes.node import Node, Watch


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Lock a file during the block, and yield True; yield False if another process has the lock."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


_LOCK: Final = "lock"
_IDENTITY: Final = "identity"
_RETRY_SECONDS: Final = 1

Check = Callable[[Connection, int], None]
"""Raises `Conflict` if this machine must stop now."""

_log = logging.getLogger(__name__)


def identity_of(folder: Path) -> str:
    """Make a folder if it is absent; return its identity, which is generated once. Blocks."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept = folder / _IDENTITY
    with suppress(FileNotFoundError):
        return kept.read_text().strip()
    new = kept.with_name(f"{_IDENTITY}.{uuid7()}")
    with new.open("x") as file:
        file.write(uuid7())
        file.flush()
        os.fsync(file.fileno())
    with suppress(FileExistsError):  # another process was first
        os.link(new, kept)
    new.unlink()
    return kept.read_text().strip()


async def begin(
    database: Database,
    clock: Clock,
    node: Node,
    watches: Sequence[Watch],
    lost: Callable[[Conflict], None],
    check: Check,
) -> Sequence[NodeWatcher]:
    """Register this machine and return its watcher; if `watches` is empty, do neither.

    `lost` is called if another machine later takes this one's name, or if `check` fails later.

    Raise `Conflict` if another machine has the name, or the check fails.
    """
    if not watches:
        return ()
    identity = await asyncio.to_thread(identity_of, node.folder)
    watcher = NodeWatcher(database, clock, node, identity, watches, lost, check)
    try:
        await database.write(watcher.claim)
    except Unavailable as error:  # such as a full disk: reads are still served
        _log.warning("this machine cannot say yet that it is there: %s", error)
    return [watcher]


class NodeWatcher(BackgroundTask):
    """Runs the turns of each `Watch` while this process holds the machine's lock."""

    name = "watcher of this machine"

    def __init__(
        self,
        database: Database,
        clock: Clock,
        node: Node,
        identity: str,
        watches: Sequence[Watch],
        lost: Callable[[Conflict], None] = lambda _: None,
        check: Check = lambda _tx, _now: None,
    ) -> None:
        super().__init__()
        self._database = database
        self._clock = clock
        self._node = node
        self._identity = identity
        self._watches = watches
        self._lost = lost
        self._check = check
        self._has_name = True

    async def run(self) -> None:
        """Wait for the lock, then watch until `stop`."""
        while not self._is_stopping:
            with try_lock(self._node.folder / _LOCK) as is_ours:
                if is_ours:
                    await self._watch()
            if not self._is_stopping:  # when stopping, there is little time
                await self._pause(_RETRY_SECONDS)
        if self._has_name:  # if another process of this machine runs, its heartbeat undoes this
            await record_before_stop(self._note_stopped, "that its node stops")

    async def _note_stopped(self) -> None:
        of = self._node.name, self._identity, self._clock()
        await self._database.write_relaxed(rows.note_stopped, *of)

    async def _watch(self) -> None:
        with suppress(Unavailable):  # the database is, as in `begin`
            await self._note()
        if not self._has_name:
            return
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_repeat(each)) for each in self._watches]
            tasks.append(group.create_task(_repeat(Watch("seen", rows.SEEN_SECONDS, self._note))))
            while not self._is_stopping and self._has_name:
                await self._pause(rows.LOST_SECONDS)
            for each in tasks:
                each.cancel()

    def claim(self, tx: Connection) -> None:
        """Register this machine, unless it has lost its name or differs in its settings.

        Raise `Conflict` if another machine has the name, or the check fails.
        """
        now = self._clock()
        self._check(tx, now)
        rows.claim(tx, self._node, self._identity, now)

    def _note_seen(self, tx: Connection) -> bool:
        now = self._clock()
        self._check(tx, now)
        return rows.note_seen(tx, self._node.name, self._identity, now)

    async def _note(self) -> None:
        try:
            if not await self._database.write_relaxed(self._note_seen):
                await self._database.write(self.claim)
        except Conflict as error:  # with what happened while this machine was silent
            _log.error("this machine looks after nothing any more: %s", error)
            self._has_name = False
            self._lost(error)
            self.stop()


async def _repeat(watch: Watch) -> None:
    while True:
        try:
            await watch.turn()
        except PlatformError as error:
            _log.warning("%s is looked at again: %s", watch.name, error)
        except Exception:  # noqa: BLE001 - the next turn tries again
            _log.exception("%s failed, and is looked at again", watch.name)
        await asyncio.sleep(watch.every_seconds)

"""Locks on the servers of a machine, between its processes.

Normally one process of a machine works on a server, under a lease. If it loses the lease, because
it was stopped or cut off from the database for long, another process begins before the first
notices.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from cloudcore.databases.servers.driver import ServerBusy, ServerFailed
from cloudcore.files import is_at
from cloudcore.nodes.shim_driver import ProgramThreads

_WAIT_SECONDS: Final = 10
_LOOK_SECONDS: Final = 0.05
T = TypeVar("T")


@dataclass(slots=True)
class _Lock:
    """A lock that is held or awaited by blocks and threads of this process."""

    holders: int = 0
    threads: set[asyncio.Future[Any]] = field(default_factory=set)
    """Calls about the server that run in threads; they continue if their caller is cancelled."""
    descriptor: int | None = None
    taking: asyncio.Lock = field(default_factory=asyncio.Lock)


class ServerLocks(ProgramThreads):
    """Serializes the calls about each server among all processes of a machine.

    Each server has a lock file beside its folder; the kernel releases the lock when a process ends.
    """

    def __init__(self, threads: ThreadPoolExecutor, base: Path) -> None:
        """Store the threads, and the folder of all servers, which may not exist yet."""
        super().__init__(threads)
        self._base = base
        self._held: dict[str, _Lock] = {}

    @asynccontextmanager
    async def held(self, program_id: str) -> AsyncIterator[None]:
        """Exclude all other calls about a server during the block; errors as `held_from_others`."""
        async with super().held(program_id), self.held_from_others(program_id):
            while threads := self._held[program_id].threads:  # whose callers were cancelled
                await asyncio.wait(threads)
            yield

    async def alone(self, program_id: str, act: Callable[[], T]) -> T:
        """Run `act` in a thread, while no other call about the server runs."""
        async with self.held(program_id):
            return await self.done_to(program_id, act)

    async def done_to(self, server_id: str, act: Callable[[], T]) -> T:
        """Run `act` in a thread that keeps the lock until `act` returns, even if this is cancelled.

        The caller must have locked the server (`held`).
        """
        lock = self._held[server_id]
        running = asyncio.get_running_loop().run_in_executor(self._threads, act)

        def ended(_: object) -> None:
            lock.threads.discard(running)
            self._leave(server_id, lock)

        lock.holders += 1
        lock.threads.add(running)
        running.add_done_callback(ended)
        return await asyncio.shield(running)

    @asynccontextmanager
    async def held_from_others(self, server_id: str) -> AsyncIterator[None]:
        """Lock a server against other processes; several blocks of this process may overlap.

        Raise `ServerBusy` if another process holds the lock for ten seconds, `ServerFailed` if the
        lock file cannot be made.
        """
        lock = self._held.setdefault(server_id, _Lock())
        lock.holders += 1
        try:
            async with lock.taking:
                if lock.descriptor is None:
                    lock.descriptor = await _taken(self._path(server_id))
            yield
        finally:
            self._leave(server_id, lock)

    def _leave(self, server_id: str, lock: _Lock) -> None:
        """Release the lock if nothing in this process uses it any more."""
        lock.holders -= 1
        if lock.holders:
            return
        del self._held[server_id]
        if lock.descriptor is not None:
            if not (self._base / server_id).exists():
                self._path(server_id).unlink(missing_ok=True)
            os.close(lock.descriptor)

    def _path(self, server_id: str) -> Path:
        return self._base / f".{server_id}.lock"


async def _taken(path: Path) -> int:
    """Lock a file; return the descriptor that holds the lock."""
    until = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ServerFailed(f"the file {path.name} cannot be locked: {error}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
        else:
            if is_at(path, descriptor):  # the previous holder may have removed the file
                return descriptor
            os.close(descriptor)
        if time.monotonic() > until:
            raise ServerBusy("another process of this machine works on this server: try again")
        await asyncio.sleep(_LOOK_SECONDS)

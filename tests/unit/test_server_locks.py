"""One process of a machine at a time works on a database server."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cloudcore.databases.servers import locks
from cloudcore.databases.servers.bubblewrap import BubblewrapServers, Listening
from cloudcore.databases.servers.driver import ServerFailed
from cloudcore.databases.servers.locks import ServerLocks

_THREADS = ThreadPoolExecutor(1)


async def test_another_process_waits_or_says_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the three opens the file: for the kernel they are as three processes."""
    one = ServerLocks(_THREADS, tmp_path)
    listening = Listening("127.0.0.1", 20_000, 200_000)
    other, third = BubblewrapServers(tmp_path, listening), BubblewrapServers(tmp_path, listening)
    (tmp_path / "server").mkdir()
    async with one.held_from_others("server"):
        async with one.held("server"):  # in one process, blocks may overlap
            waiting = asyncio.create_task(other.stop("server"))
            await asyncio.sleep(0)
            assert not waiting.done()
        monkeypatch.setattr(locks, "_WAIT_SECONDS", 0)
        with pytest.raises(ServerFailed, match="another process of this machine works on this"):
            await third.remove("server", at_once=True)
        assert (tmp_path / "server").exists()
    await waiting
    await _keeps_the_lock_to_its_end(one, third)
    await other.remove("server", at_once=True)
    assert left_in(tmp_path) == []


async def _keeps_the_lock_to_its_end(one: ServerLocks, third: BubblewrapServers) -> None:
    """What a thread does goes on when its caller is cancelled, as its lease was lost."""
    has_begun, may_end = threading.Event(), threading.Event()

    def act() -> None:
        has_begun.set()
        may_end.wait()

    lost = asyncio.create_task(one.alone("server", act))
    await asyncio.to_thread(has_begun.wait)
    lost.cancel()
    with pytest.raises(asyncio.CancelledError):
        await lost
    with pytest.raises(ServerFailed, match="another process"):
        await third.stop("server")
    next_one = asyncio.create_task(one.alone("server", lambda: "next"))
    may_end.set()
    assert await next_one == "next"


def left_in(folder: Path) -> list[Path]:
    return [*folder.iterdir()]

"""Locks of the processes of a machine: one at a database server, and those that tell of a death."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from cloudcore.databases.servers import locks
from cloudcore.databases.servers.bubblewrap import BubblewrapServers, Listening
from cloudcore.databases.servers.driver import ServerFailed
from cloudcore.databases.servers.locks import ServerLocks
from cloudcore.jobs import dead_holders
from cloudcore.jobs.dead_holders import KEPT_SECONDS, WorkerLocks
from tests.databases import program_environment

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


ONE, TWO, THREE = "one", "two", "three"
HOLD = """
import sys
from pathlib import Path
from cloudcore.jobs.dead_holders import WorkerLocks
with WorkerLocks(Path(sys.argv[1])).locked(sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""


def kill_holder(folder: Path, worker_id: str) -> None:
    """Let a process hold a worker's lock, see it alive, and kill it."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), worker_id],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=program_environment(),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert not WorkerLocks(folder).is_dead(worker_id)
        process.kill()


def test_a_killed_worker_is_dead_and_one_that_ended_well_is_unknown(tmp_path: Path) -> None:
    locks = WorkerLocks(tmp_path / "workers")
    kill_holder(tmp_path / "workers", ONE)
    assert locks.is_dead(ONE)
    with locks.locked(TWO):
        assert not locks.is_dead(TWO)
    assert not locks.is_dead(TWO)
    assert not locks.is_dead(THREE)


def test_a_dead_worker_is_known_as_long_as_its_leases_last(tmp_path: Path) -> None:
    now = [1_000_000.0]
    locks = WorkerLocks(tmp_path / "workers", lambda: now[0])
    kill_holder(tmp_path / "workers", ONE)
    with ExitStack() as stack:
        stack.enter_context(locks.locked(TWO))
        assert locks.is_dead(ONE)
        now[0] += KEPT_SECONDS - 1
        stack.enter_context(locks.locked(THREE))
        assert locks.is_dead(ONE)
        now[0] += 1
        stack.enter_context(locks.locked("four"))
        assert not locks.is_dead(ONE)
        assert not locks.is_dead(TWO)
    assert list((tmp_path / "workers").iterdir()) == []


def test_a_worker_of_another_machine_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_holder(tmp_path / "workers", ONE)
    other = tmp_path / "boot_id"
    other.write_text("another machine\n")
    monkeypatch.setattr(dead_holders, "_BOOT_ID", other)
    assert not WorkerLocks(tmp_path / "workers").is_dead(ONE)


def test_a_worker_that_is_starting_is_not_taken_for_dead(tmp_path: Path) -> None:
    folder = tmp_path / "workers"
    locks = WorkerLocks(folder)
    starting = folder / "one.new"
    starting.touch()
    with locks.locked(TWO):
        assert starting.exists()
    os.utime(starting, (0, 0))
    with locks.locked(THREE):
        assert not starting.exists()

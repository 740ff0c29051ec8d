"""Whether a worker process of this machine has died, as its lock tells."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from cloudcore.jobs import dead_holders
from cloudcore.jobs.dead_holders import KEPT_SECONDS, WorkerLocks
from tests.databases import program_environment

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

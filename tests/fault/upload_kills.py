"""Uploads killed at every file operation: ``python -m tests.fault.upload_kills KEY SEEDS``.

A child process is forked for each kill and runs whole uploads; it dies before or in the middle of
one operation, and after it if something is acknowledged before the next: else that one's death
leaves the same. This is a program of its own because a fork copies the tables of all
memory: of a process that has collected the tests, that takes twenty times as long.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from registry.blobstore.base import DataKey
from registry.blobstore.disk.files import DiskFiles
from tests.fault.operations import WATCHED, Operation, changes, watched
from tests.fault.uploads import (
    Acknowledge,
    Acknowledged,
    Plan,
    acknowledged_before_death,
    check_recovered,
    plans,
    upload,
)
from tests.small_frames import KEY, PACKED_KEY, small_frames

KEYS: Final = {"plain": None, "sealed": KEY, "packed": PACKED_KEY}
"""What uploads are sealed with, by the words of the command."""


class Killer:
    """Ends this process at operation number `when`, counted from 0."""

    def __init__(self, when: int, moment: str) -> None:
        self.when = when
        self.moment = moment
        self.count = 0

    def __call__(self, operation: Operation) -> object:
        """Make the call unless it is the last one."""
        self.count += 1
        if self.count - 1 != self.when:
            return operation.call()
        if self.moment == "after":
            with suppress(OSError):
                operation.call()
        if self.moment == "torn" and operation.name == "pwrite":
            descriptor, view, offset = operation.arguments
            os.lseek(descriptor, offset, os.SEEK_SET)
            os.write(descriptor, view[: len(view) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


def run(seed: int, key: DataKey | None) -> list[Plan]:
    """Return two uploads, so that the second dies beside a first that is complete.

    The first seed, which always runs, takes the two of several requests.
    """
    return plans(seed, key)[2 - seed % 2 * 2 :][:2]


def moments(store: DiskFiles, seed: int, key: DataKey | None) -> list[tuple[int, str]]:
    """Return every operation of a run that changes something, by number, and when to die at it."""
    found: list[tuple[int, str]] = []
    names: list[str] = []

    def note(operation: Operation) -> object:
        torn = ["torn"] if operation.name == "pwrite" else []
        if changes(operation):
            found.extend((len(names), moment) for moment in ["before", *torn])
        names.append(operation.name)
        return operation.call()

    def acknowledge(*_: object) -> None:
        found.append((len(names) - 1, "after"))

    with watched(note):
        for plan in run(seed, key):
            upload(store, plan, acknowledge)
    clear(store, seed, key)
    assert set(names) == {*WATCHED, "flock"} - {"unlink"}, "uploads no longer exercise them all"
    return found


def clear(store: DiskFiles, seed: int, key: DataKey | None) -> None:
    for plan in run(seed, key):
        store.discard(plan.upload_id)
        store.delete(plan.upload_id)


def run_and_die(
    store: DiskFiles, seed: int, key: DataKey | None, when: int, moment: str
) -> Acknowledged:
    """Upload in a child that dies at operation `when`; return what it had acknowledged."""

    def work(acknowledge: Acknowledge) -> None:
        with watched(Killer(when, moment)):
            for plan in run(seed, key):
                upload(store, plan, acknowledge)

    return acknowledged_before_death(work, f"operation {when}")


def kill_at_each(store: DiskFiles, seed: int, key: DataKey | None) -> None:
    """Kill uploads at each operation, and check each time that nothing acknowledged is lost."""
    acknowledgements = commits = 0
    possible = moments(store, seed, key)
    for when, moment in possible:
        rows = run_and_die(store, seed, key, when, moment)
        acknowledgements += len(rows.offsets)
        commits += len(rows.committed)
        for plan in run(seed, key):
            check_recovered(store, plan, rows)
        clear(store, seed, key)
    assert list(store.list_objects()) == []
    assert list(store.list_staged()) == []
    assert len(possible) > 40
    assert acknowledgements > len(possible)
    assert commits > len(possible) // 3


def main(key: str, seeds: str) -> None:
    """Do so for each seed below `seeds`, in memory: a kill leaves the page cache whole."""
    memory = Path("/dev/shm")
    with (
        small_frames(),
        tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder,
        closing(DiskFiles(Path(folder), compresses=True)) as store,
    ):
        for seed in range(int(seeds)):
            kill_at_each(store, seed, KEYS[key])


if __name__ == "__main__":
    main(*sys.argv[1:])

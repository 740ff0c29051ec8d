"""Collections killed at every step: ``python -m tests.fault.collector_kills FOLDER KIND``.

A child process is forked for each kill. It dies before one call to the database or to the system
that changes something, or after the last: to die after any other leaves what a death before the
next one leaves. This is a program of its own, forked from a process that has collected no tests: a
fork copies the tables of all memory.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from registry.blobstore.disk.store import FilesystemStore
from registry.settings.groups import Limits
from tests.fault.collected import check_clean, check_needed, clean, fill
from tests.fault.operations import Operation, changes, watched
from tests.fault.seams import SteppingDatabase, Steps
from tests.inprocess import IN_FILES, START, ManualClock, Registry, open_registry
from tests.recount import check_counters, object_ids, querying

HOUR = 3600 * 10**6
KINDS: Final = {"files": (IN_FILES, False), "inline": (Limits(), False), "sealed": (IN_FILES, True)}
"""Limits of a registry, and whether its blobs are sealed, by the words of the command.

Sealed blobs take the steps of files: they are killed at the first step of each name only.
"""
Scenario = Callable[[Registry, FilesystemStore], Awaitable[None]]


class SmallStore(FilesystemStore):
    """Has an orphan scan visit, of all 256 folders, those with objects and the first without."""

    def partitions(self) -> Sequence[str]:
        """See `BlobSweeper.partitions`."""
        folders = super().partitions()
        empty = [each for each in folders if not any(self.files.list_ids(each))]
        return [each for each in folders if each not in empty[1:]]


class Killer(Steps):
    """Notes steps, and ends this process at one of them."""

    def __init__(self, when: int | None = None) -> None:
        super().__init__()
        self.when = when

    def take(self, step: str) -> None:
        """Take a step, or die."""
        if len(self.taken) == self.when:
            os.kill(os.getpid(), signal.SIGKILL)
        self.taken.append(step)

    def operation(self, operation: Operation) -> object:
        """Make a system call, a step before and one after it if it changes anything."""
        if not changes(operation):
            return operation.call()
        with self.both(operation.name):
            return operation.call()


def play(
    data: Path,
    scenario: Scenario,
    steps: Steps | None = None,
    *,
    hours: int = 4,
    limits: Limits | None = None,
    seals: bool = False,
) -> None:
    """Run a scenario over the rows and files of a folder, so many hours after the beginning."""

    async def run(store: FilesystemStore) -> None:
        async with open_registry(
            f"sqlite:///{data}/metadata.db",
            store,
            clock=ManualClock(START + hours * HOUR),
            limits=limits,
            seals=seals,
            around=lambda database: SteppingDatabase(database, steps or Steps()),
        ) as registry:
            await scenario(registry, store)

    with closing(SmallStore(data / "blobs")) as store:
        asyncio.run(run(store))


async def clean_twice(registry: Registry, store: FilesystemStore) -> None:
    """Check what is needed, and after two collections that nothing else is left."""
    await check_needed(registry, store)
    await clean(registry, store)
    await clean(registry, store)
    await check_clean(registry, store)


def collect(data: Path, killer: Killer, *, seals: bool) -> None:
    with watched(killer.operation):
        play(data, clean, killer, seals=seals)


def steps_of(data: Path, *, seals: bool) -> list[int]:
    """Collect once; return the numbers of the steps at which to die."""
    noted = Killer()
    collect(data, noted, seals=seals)
    steps = noted.taken
    deadly = [number for number, step in enumerate(steps) if step.startswith("before")]
    if seals:
        deadly = [number for number in deadly if steps[number] not in steps[:number]]
    assert len(deadly) > (8 if seals else 15)
    return [*deadly, len(steps) - 1]


def collect_and_die(data: Path, when: int, *, seals: bool) -> None:
    """Collect in a child that dies at a step."""
    child = os.fork()
    if child == 0:
        try:
            collect(data, Killer(when), seals=seals)
        except BaseException:  # noqa: BLE001 - told by the parent
            sys.excepthook(*sys.exc_info())
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), f"it has not died at step {when}; standard error may say why"
    assert os.WTERMSIG(status) == signal.SIGKILL


class Copy(NamedTuple):
    """What a folder held, to be put back: its few files, and not its many folders."""

    data: Path
    files: Mapping[Path, bytes]

    @classmethod
    def of(cls, data: Path) -> Copy:
        """Take a copy of a folder."""
        return cls(data, {path: path.read_bytes() for path in _files(data)})

    def put_back(self) -> None:
        """Let the folder hold what it held."""
        for path in _files(self.data):
            path.unlink()
        for path, content in self.files.items():
            path.write_bytes(content)


def _files(data: Path) -> list[Path]:
    return [Path(folder, name) for folder, _, names in os.walk(data) for name in names]


def main(place: str, kind: str) -> None:
    """Kill a collection at each step, over a folder that holds a migrated database."""
    folder = Path(place)
    limits, seals = KINDS[kind]
    play(folder, fill, hours=0, limits=limits, seals=seals)
    copy = Copy.of(folder)
    for step in steps_of(folder, seals=seals):
        copy.put_back()
        collect_and_die(folder, step, seals=seals)
        play(folder, clean_twice, hours=8, seals=seals)
        with querying(f"sqlite:///{folder}/metadata.db") as query:
            check_counters(query, "dev")
            with closing(FilesystemStore(folder / "blobs")) as store:
                assert {each.object_id for each in store.files.list_objects()} == object_ids(query)
            assert list(query("SELECT id FROM runs WHERE state = 'running'")) == []


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Collections killed at every step: ``python -m tests.fault.collector_kills FOLDER KIND``.

A child process is forked for each kill. It dies before or after one call to the database or to the
system that changes something. This is a program of its own for what `tests.fault.small_process`
says of forks.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from registry.blobstore.disk.store import FilesystemStore
from registry.settings.groups import Limits
from tests.fault.collected import check_clean, check_needed, clean, fill
from tests.fault.operations import Operation, watched
from tests.fault.seams import SteppingDatabase, Steps
from tests.inprocess import IN_FILES, START, ManualClock, Registry, open_registry
from tests.recount import check_counters, object_ids, querying

HOUR = 3600 * 10**6
KINDS: Final = {"files": (IN_FILES, False), "inline": (Limits(), False), "sealed": (IN_FILES, True)}
"""Limits of a registry, and whether its blobs are sealed, by the words of the command."""
Scenario = Callable[[Registry, FilesystemStore], Awaitable[None]]


class Killer(Steps):
    """Counts steps, and ends this process at one of them."""

    def __init__(self, when: int | None) -> None:
        super().__init__()
        self.when = when

    def take(self, step: str) -> None:
        """Take a step, or die."""
        if len(self.taken) == self.when:
            os.kill(os.getpid(), signal.SIGKILL)
        self.taken.append(step)

    def operation(self, operation: Operation) -> object:
        """Make a system call, a step before and one after it if it changes anything."""
        if operation.name in ("open", "flock"):
            return operation.call()
        self.take(f"before {operation.name}")
        result = operation.call()
        self.take(f"after {operation.name}")
        return result


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

    with closing(FilesystemStore(data / "blobs")) as store:
        asyncio.run(run(store))


async def clean_twice(registry: Registry, store: FilesystemStore) -> None:
    """Check what is needed, and after two collections that nothing else is left."""
    await check_needed(registry, store)
    await clean(registry, store)
    await clean(registry, store)
    await check_clean(registry, store)


def collect_and_die(data: Path, when: int, *, seals: bool) -> bool:
    """Collect in a child that dies at a step; say whether it came so far."""
    child = os.fork()
    if child == 0:
        try:
            killer = Killer(when)
            with watched(killer.operation):
                play(data, clean, killer, seals=seals)
        except BaseException:  # noqa: BLE001 - told by the parent
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0, "the child failed; its standard error says why"
        return False
    assert os.WTERMSIG(status) == signal.SIGKILL
    return True


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
    return [path for path in data.rglob("*") if path.is_file()]


def main(place: str, kind: str) -> None:
    """Kill a collection at each step, over a folder that holds a migrated database."""
    folder = Path(place)
    limits, seals = KINDS[kind]
    play(folder, fill, hours=0, limits=limits, seals=seals)
    copy = Copy.of(folder)
    kills = 0
    while collect_and_die(folder, kills, seals=seals):
        play(folder, clean_twice, hours=8, seals=seals)
        with querying(f"sqlite:///{folder}/metadata.db") as query:
            check_counters(query, "dev")
            with closing(FilesystemStore(folder / "blobs")) as store:
                assert {each.object_id for each in store.files.list_objects()} == object_ids(query)
            assert list(query("SELECT id FROM runs WHERE state = 'running'")) == []
        copy.put_back()
        kills += 1
    assert kills > 30


if __name__ == "__main__":
    main(*sys.argv[1:])

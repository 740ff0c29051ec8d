"""SIGKILL at every file operation of an upload: what was acknowledged is there, and right.

G1 of the reliability goals. A child process is forked for each kill and runs whole uploads; it
dies before, after or in the middle of one operation. ``ENTREPOT_CRASH_SEEDS`` asks for a soak.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.fault.operations import WATCHED, Operation, watched
from tests.fault.uploads import Acknowledged, check_recovered, plans, upload

from registry.blobstore.filesystem import FilesystemStore

SEEDS = int(os.environ.get("ENTREPOT_CRASH_SEEDS", "3"))


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


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FilesystemStore]:
    with closing(FilesystemStore(tmp_path)) as filesystem:
        yield filesystem


def moments(store: FilesystemStore, seed: int) -> list[tuple[int, str]]:
    """Return every operation of a run, by number, with each moment at which to die."""
    found: list[tuple[int, str]] = []
    names: list[str] = []

    def note(operation: Operation) -> object:
        torn = ["torn"] if operation.name == "pwrite" else []
        found.extend((len(names), moment) for moment in ["before", "after", *torn])
        names.append(operation.name)
        return operation.call()

    with watched(note):
        for plan in plans(seed):
            upload(store, plan, Acknowledged())
    clear(store, seed)
    assert set(names) == {*WATCHED, "flock"} - {"unlink"}, "uploads no longer exercise them all"
    return found


def clear(store: FilesystemStore, seed: int) -> None:
    for plan in plans(seed):
        store.discard(plan.upload_id)
        store.delete(plan.upload_id)


def run_and_die(root: Path, seed: int, when: int, moment: str) -> Acknowledged:
    """Upload in a child that dies at operation `when`; return what it had acknowledged."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _upload_all(root, seed, Killer(when, moment), writer)
        except BaseException as error:  # noqa: BLE001 - the child must not run the parent's tests
            print(repr(error), file=sys.__stderr__)
            os._exit(1)
        os._exit(0)
    os.close(writer)
    rows = Acknowledged()
    with os.fdopen(reader) as lines:
        for line in lines:
            rows(*json.loads(line))
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), f"operation {when} was never reached"
    assert os.WTERMSIG(status) == signal.SIGKILL
    return rows


def _upload_all(root: Path, seed: int, killer: Killer, writer: int) -> None:
    store = FilesystemStore(root)

    def acknowledge(upload_id: str, offset: int, digests: Mapping[str, str]) -> None:
        line = json.dumps([upload_id, offset, dict(digests)]) + "\n"
        os.write(writer, line.encode())

    with watched(killer):
        for plan in plans(seed):
            upload(store, plan, acknowledge)


@pytest.mark.timeout(120 + 30 * SEEDS)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_kill_at_any_operation_loses_nothing_acknowledged(
    store: FilesystemStore, tmp_path: Path, seed: int
) -> None:
    kills = commits = 0
    for when, moment in moments(store, seed):
        rows = run_and_die(tmp_path, seed, when, moment)
        kills += 1
        commits += len(rows.committed)
        for plan in plans(seed):
            check_recovered(store, plan, rows)
        clear(store, seed)
    assert list(store.list_objects()) == []
    assert list(store.list_staged()) == []
    assert kills > 150
    assert commits > kills

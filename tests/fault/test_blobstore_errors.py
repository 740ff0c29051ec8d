"""A disk that fails at each operation in turn: no success is answered, nothing flushed twice.

The first half fails calls in this process, each of them; the second
fails system calls with strace, to show that the first half watches the right ones.
"""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from registry.blobstore.base import DataKey, ObjectUnknown
from registry.blobstore.disk.files import DiskFiles
from registry.errors import StoreUnavailable
from tests.fault.operations import Operation, watched
from tests.fault.uploads import Acknowledged, check_recovered, plans, read, upload
from tests.live import ROOT
from tests.small_frames import KEY, PACKED_KEY, small_frames
from tests.tools import require_tool

UNDOING = frozenset({"unlink", "ftruncate", "rename"})
"""What a hold does to bytes that it cannot vouch for: never a flush, nor a write."""


class Breaker:
    """Fails operation number `when`, and with `lasting` every one after it."""

    def __init__(self, when: int, code: int, *, lasting: bool) -> None:
        self.when = when
        self.code = code
        self.lasting = lasting
        self.names: list[str] = []

    def __call__(self, operation: Operation) -> Any:  # noqa: ANN401 - any system call
        """Make the call or fail."""
        number = len(self.names)
        self.names.append(operation.name)
        if number == self.when or (self.lasting and number > self.when >= 0):
            raise OSError(self.code, os.strerror(self.code), "/some/path")
        return operation.call()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DiskFiles]:
    with closing(DiskFiles(tmp_path, compresses=True)) as filesystem:
        yield filesystem


@pytest.mark.parametrize("key", [None, KEY, PACKED_KEY], ids=["plain", "sealed", "packed"])
@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_a_failure_at_any_operation_is_never_answered_with_success(
    store: DiskFiles, code: int, lasting: bool, key: DataKey | None
) -> None:
    with small_frames():
        fail_at_each(store, code, lasting, key)


def fail_at_each(store: DiskFiles, code: int, lasting: bool, key: DataKey | None) -> None:
    other, plan = plans(1, key)[1:3]
    upload(store, other, Acknowledged())
    count = Breaker(-1, 0, lasting=False)
    with watched(count):
        upload(store, plan, Acknowledged())
    store.delete(plan.upload_id)
    assert len(count.names) > 30
    for when, name in enumerate(count.names):
        rows = Acknowledged()
        breaker = Breaker(when, code, lasting=lasting)
        with watched(breaker), pytest.raises(StoreUnavailable) as raised:
            upload(store, plan, rows)
        assert "/" not in raised.value.message
        assert set(breaker.names[when + 1 :]) <= UNDOING, breaker.names[when:]
        assert read(store, other.upload_id, key) == other.data
        if name == "fsync" and not lasting:
            with pytest.raises(ObjectUnknown):
                store.open(plan.upload_id, None, key)
        # What was acknowledged before stays; of nothing, nothing may be left.
        with suppress(*[] if rows.offsets.get(plan.upload_id) else [ObjectUnknown]):
            check_recovered(store, plan, rows)
        store.discard(plan.upload_id)
        store.delete(plan.upload_id)


DRIVER = """
import json, pathlib, sys
from registry.blobstore.disk.files import DiskFiles
from registry.errors import StoreUnavailable
from tests.fault.uploads import Acknowledged, plans, read, upload
store = DiskFiles(pathlib.Path(sys.argv[1]))
first, plan, later = plans(1)[1:]
rows = Acknowledged()
answers = []
for each in (first, plan, later):
    try:
        upload(store, each, rows)
        answers.append(read(store, each.upload_id) == each.data)
    except StoreUnavailable as error:
        answers.append(error.message)
print(json.dumps(answers))
"""

TRACED = re.compile(r"(?P<call>\w+)\((?P<arguments>.*)\)\s+= (?P<answer>.*)")
READING = frozenset(
    ["newfstatat", "fstat", "fstatfs", "statx", "getdents64", "lseek", "fcntl", "close", "flock"]
).union(["preadv", "preadv2", "fadvise64"])
"""Calls on the store's files and folders that change nothing."""


class Trace:
    """One run of `DRIVER` under strace: its answers, and its calls that name the store."""

    def __init__(self, root: Path, log: Path, *options: str) -> None:
        command = [require_tool("strace"), "-f", "-y", "-s", "0", "-o", str(log), *options]
        run = subprocess.run(
            [*command, sys.executable, "-c", DRIVER, str(root)],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
            check=False,
        )
        assert run.returncode == 0, run.stderr
        self.answers: list[bool | str] = json.loads(run.stdout)
        lines = (line for line in log.read_text().splitlines() if f"{root}/" in line)
        self.calls = [found.groupdict() for line in lines if (found := TRACED.search(line))]


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    DiskFiles(tmp_path / "blobs").close()
    return tmp_path / "blobs", tmp_path / "trace"


def test_the_watched_operations_are_all_that_reach_the_disk(folders: tuple[Path, Path]) -> None:
    trace = Trace(*folders)
    assert trace.answers == [True, True, True]
    names = {each["call"] for each in trace.calls} - READING
    assert names == {"openat", "mkdirat", "pwrite64", "ftruncate", "fsync", "renameat"}


@pytest.mark.parametrize("when", [1, 3, 4, 6])
@pytest.mark.parametrize(
    ("call", "code"), [("fsync", "EIO"), ("pwrite64", "ENOSPC"), ("renameat", "EIO")]
)
def test_a_failed_system_call_is_never_answered_with_success(
    folders: tuple[Path, Path], call: str, code: str, when: int
) -> None:
    # The store flushes two folders when it opens; those are not an upload's.
    number = when + 2 if call == "fsync" else when
    trace = Trace(*folders, "-e", f"inject={call}:error={code}:when={number}")
    failed = [number for number, each in enumerate(trace.calls) if "INJECT" in each["answer"]]
    assert len(failed) == 1
    message = {"EIO": "the blob store failed (EIO)", "ENOSPC": "the blob store is full"}[code]
    assert sorted(trace.answers, key=str) == [True, True, message]
    broken = trace.calls[failed[0]]
    is_file = broken["arguments"].rpartition("/")[2].count("-") > 3  # its name is an id
    if call == "fsync" and is_file:
        again = [each for each in trace.calls[failed[0] + 1 :] if each["call"] == "fsync"]
        assert broken["arguments"] not in [each["arguments"] for each in again]

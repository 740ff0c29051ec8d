"""Uploads as a service drives them, told step by step what has been acknowledged."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

from registry.blobstore.base import DataKey, ObjectUnknown
from registry.blobstore.disk.files import DiskFiles
from registry.oci.digest import ALGORITHMS, Digest, digest_of
from tests.small_frames import PACKED_KEY, compressible

Acknowledge = Callable[[str, int, Mapping[str, str]], None]
"""Called with an upload id, its bytes, and their digests once they are safe; -1 for a commit."""

COMMITTED = -1


class Plan(NamedTuple):
    """One upload: requests of so many bytes, written in units, then the rest and a commit."""

    upload_id: str
    data: bytes
    requests: tuple[int, ...]
    unit: int
    algorithm: str
    key: DataKey | None = None

    @property
    def digest(self) -> Digest:
        """Return the digest it is committed under."""
        return digest_of(self.data, self.algorithm)


@dataclass
class Acknowledged:
    """What the rows of two tables would hold."""

    offsets: dict[str, int] = field(default_factory=dict)
    digests: dict[str, Mapping[str, str]] = field(default_factory=dict)
    committed: set[str] = field(default_factory=set)

    def __call__(self, upload_id: str, offset: int, digests: Mapping[str, str]) -> None:
        """Take an acknowledgement."""
        if offset == COMMITTED:
            self.committed.add(upload_id)
        else:
            self.offsets[upload_id] = offset
            self.digests[upload_id] = digests


def plans(seed: int, key: DataKey | None = None) -> list[Plan]:
    """Return uploads of sizes that matter: nothing, one byte, several units, several requests.

    They are sealed with `key`, if there is one; those of `PACKED_KEY` can be compressed.
    """
    rng = random.Random(seed)
    made = []
    for requests in ((0,), (1,), (300, 200), (rng.randrange(900), rng.randrange(1, 900), 0)):
        tail = min(1, sum(requests)) * 120  # for the last request, which commits too
        size = sum(requests) + tail
        data = compressible(rng, size) if key is PACKED_KEY else rng.randbytes(size)
        name = str(uuid.UUID(int=rng.getrandbits(128)))
        made.append(
            Plan(name, data, requests, rng.randrange(100, 400), rng.choice(ALGORITHMS), key)
        )
    return made


def upload(store: DiskFiles, plan: Plan, acknowledge: Acknowledge) -> None:
    """Send all of a plan, one hold a request, as separate requests do."""
    with closing(store.stage(plan.upload_id, plan.algorithm, plan.key)) as staged:
        digests: Mapping[str, str] = {}
        empty = {"sha256": digest_of(b"").partition(":")[2]}
        staged.rewind(0, empty, plan.algorithm, plan.key)
        if len(plan.requests) > 1:  # else the session is acknowledged with the first bytes
            digests = staged.flush()
            acknowledge(plan.upload_id, 0, digests)
    offset = 0
    for count in plan.requests:
        with closing(store.resume(plan.upload_id)) as staged:
            staged.rewind(offset, digests, plan.algorithm, plan.key)
            for part in units(plan, offset, offset + count):
                staged.write(part)
            offset += count
            digests = staged.flush()
            acknowledge(plan.upload_id, offset, digests)
    leave_early(store, plan, offset, digests)
    finish(store, plan, offset, digests, Acknowledged())  # as if the row had not been written
    finish(store, plan, offset, digests, acknowledge)


def leave_early(store: DiskFiles, plan: Plan, offset: int, digests: Mapping[str, str]) -> None:
    """Resume at `offset`, write something that is never flushed nor acknowledged, and go."""
    with closing(store.resume(plan.upload_id)) as staged:
        staged.rewind(offset, digests, plan.algorithm, plan.key)
        staged.write(memoryview(b"not in the plan"))


def finish(
    store: DiskFiles,
    plan: Plan,
    offset: int,
    digests: Mapping[str, str],
    acknowledge: Acknowledge,
) -> None:
    """Resume at `offset`, send the rest, commit; the hold ends after the acknowledgement."""
    with closing(store.resume(plan.upload_id)) as staged:
        staged.rewind(offset, digests, plan.algorithm, plan.key)
        for part in units(plan, offset, len(plan.data)):
            staged.write(part)
        staged.commit(plan.digest)
        acknowledge(plan.upload_id, COMMITTED, {})


def units(plan: Plan, start: int, stop: int) -> Iterator[memoryview]:
    """Yield bytes ``[start, stop)`` of a plan in its units."""
    view = memoryview(plan.data)
    for offset in range(start, stop, plan.unit):
        yield view[offset : min(offset + plan.unit, stop)]


def read(store: DiskFiles, object_id: str, key: DataKey | None = None) -> bytes:
    """Return all bytes of an object."""
    with closing(store.open(object_id, None, key)) as stored:
        return b"".join(bytes(chunk) for chunk in stored.chunks())


def acknowledged_before_death(work: Callable[[Acknowledge], None], place: str) -> Acknowledged:
    """Work in a child that kills itself at `place`; return what it had acknowledged."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:

        def acknowledge(upload_id: str, offset: int, digests: Mapping[str, str]) -> None:
            line = json.dumps([upload_id, offset, dict(digests)]) + "\n"
            os.write(writer, line.encode())

        try:
            work(acknowledge)
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
    assert os.WIFSIGNALED(status), f"{place} was never reached"
    assert os.WTERMSIG(status) == signal.SIGKILL
    return rows


def check_recovered(store: DiskFiles, plan: Plan, rows: Acknowledged) -> None:
    """Check one upload after a crash: nothing acknowledged is lost, nothing wrong is served."""
    name = plan.upload_id
    try:
        assert digest_of(read(store, name, plan.key), plan.algorithm) == plan.digest
    except ObjectUnknown:
        assert name not in rows.committed, "an acknowledged commit is gone"
    if name in rows.committed or name not in rows.offsets:
        return
    finish(store, plan, rows.offsets[name], rows.digests[name], rows)
    assert read(store, name, plan.key) == plan.data

"""A worker that stops for ever at a step: ``python -m tests.fault.stopping_worker``.

Arguments: URL FOLDER LOCATION METHOD STEP. It sends one request to LOCATION with the bytes of its
standard input, prints the step when it is there, and waits to be killed.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import cast

from cloudcore.clock import uuid7
from cloudcore.jobs.dead_holders import WorkerLocks
from registry.blobstore.disk.store import FilesystemStore
from registry.blobstore.store import BlobStore
from registry.services.blobs.upload_leases import Leases
from tests.fault.seams import SteppingDatabase, SteppingStore, Steps
from tests.inprocess import open_registry


class StoppingSteps(Steps):
    """Steps of which one, by name, is never left."""

    def __init__(self, step: str) -> None:
        super().__init__()
        self._step = step

    def take(self, step: str) -> None:
        """Take a step, or stop there."""
        if step == self._step:
            sys.stdout.write(f"{step}\n")
            sys.stdout.flush()
            threading.Event().wait()


async def main(url: str, folder: str, location: str, method: str, step: str) -> None:
    """Send the request."""
    steps = StoppingSteps(step)
    data = sys.stdin.buffer.read()
    locks, worker_id = WorkerLocks(Path(folder).parent / "workers"), uuid7()
    with closing(FilesystemStore(Path(folder))) as store, locks.locked(worker_id):
        async with open_registry(
            url,
            cast("BlobStore", SteppingStore(store, steps)),
            around=lambda database: SteppingDatabase(database, steps),
            leases=Leases(worker_id, locks.is_dead),
        ) as registry:
            answer = await registry.client.request(method, location, [data[:-1], data[-1:]])
            sys.stdout.write(f"answered {answer.status}\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

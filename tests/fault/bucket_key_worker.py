"""A process that is killed in the middle of a rewrap of a bucket, or of the shredding of pieces.

``python -m tests.fault.bucket_key_worker (rewrap|shred) URL FOLDER STEP``; it kills itself.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from cloudcore.jobs.background import running
from cloudcore.jobs.worker import JobPace, JobWorker
from cloudcore.kms.providers import EmbeddedProvider, Providers
from cloudcore.storage.pieces import cleanup, rewrapping
from cloudcore.storage.pieces import keys as piece_keys
from registry.blobstore.disk.store import FilesystemStore
from registry.buckets.store import BlobBucketBytes
from tests.databases import opened
from tests.fault.deaths import die_at
from tests.inprocess import ManualClock
from tests.kms_world import KEYRING, KmsWorld
from tests.storage_world import StorageWorld, storage_world

PORTION: Final = 2
"""Pieces that one step looks at."""
REWRAP_STEPS: Final[Mapping[str, tuple[str, bool, int]]] = {
    "before the rows": ("_write", False, 2),
    "before the commit": ("_write", True, 2),
    "between two steps": ("_read", False, 3),
}
"""Where a rewrap dies: before or after the given call of a function."""
SHRED_STEPS: Final[Mapping[str, tuple[object, str, bool, int]]] = {
    "before the bytes": (BlobBucketBytes, "delete", False, 1),
    "before the rows": (piece_keys, "shred", False, 1),
    "before the commit": (piece_keys, "shred", True, 1),
    "between two batches": (BlobBucketBytes, "delete", False, 2),
}
"""Likewise, for a shredding."""


async def _rewrap(world: StorageWorld, step: str) -> None:
    rewrapping.PORTION = PORTION  # type: ignore[misc]
    name, after, number = REWRAP_STEPS[step]
    setattr(rewrapping, name, die_at(number, getattr(rewrapping, name), after=after))
    pace = JobPace(poll_seconds=0.05)
    kind = rewrapping.rewrap_kind(world.needs)
    async with running(JobWorker(world.database, [kind], pace=pace)):
        await asyncio.Event().wait()


async def _shred(world: StorageWorld, step: str) -> None:
    cleanup._PAGE = PORTION  # type: ignore[misc]
    of, name, after, number = SHRED_STEPS[step]
    setattr(of, name, die_at(number, getattr(of, name), after=after))
    await cleanup.shred_deleted_keys(world.needs)


async def _run(what: str, url: str, folder: str, step: str) -> None:
    with closing(FilesystemStore(Path(folder))) as store:
        async with opened(url) as database:
            kms = KmsWorld(database, Providers(EmbeddedProvider(KEYRING)), ManualClock())
            run = {"rewrap": _rewrap, "shred": _shred}[what]
            await run(storage_world(database, store, kms), step)


if __name__ == "__main__":
    asyncio.run(_run(*sys.argv[1:]))

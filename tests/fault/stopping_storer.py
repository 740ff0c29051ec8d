"""A process that stores an object, or completes an upload, and stops at a step until it is killed.

``python -m tests.fault.stopping_storer URL FOLDER STEP OPERATION [UPLOAD PART…]``
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import closing
from pathlib import Path
from typing import Final, cast

from cloudcore.kms.providers import EmbeddedProvider, Providers
from cloudcore.storage import buckets
from cloudcore.storage.pieces import rows as piece_rows
from registry.blobstore.disk.store import FilesystemStore
from tests.databases import opened
from tests.fault.seams import SteppingDatabase, SteppingStore
from tests.fault.stopping_worker import StoppingSteps
from tests.inprocess import ManualClock
from tests.kms_world import ACME, KEYRING, KmsWorld
from tests.storage_world import REGION, storage_world

NEW: Final = b"new bytes " * 200_000
HOUR: Final = 3600


async def run(url: str, folder: str, step: str, operation: str, *upload: str) -> None:
    """Do the operation."""
    steps = StoppingSteps(step)
    with closing(FilesystemStore(Path(folder))) as store:
        async with opened(url) as plain:
            database = SteppingDatabase(plain, steps)
            stepping = cast("FilesystemStore", SteppingStore(store, steps))
            clock = ManualClock()
            clock.advance(HOUR)  # later than what was stored before
            kms = KmsWorld(database, Providers(EmbeddedProvider(KEYRING)), clock)
            world = storage_world(database, stepping, kms)
            bucket = await database.read(buckets.find_bucket, ACME, REGION, "photos")
            if operation == "put":
                await world.put(bucket, "key", NEW)
                return
            (upload_id,) = upload
            begun = await world.begin(bucket, "unused")
            found = begun._replace(id=upload_id)
            if operation == "part":
                await world.part(bucket, found, 1, NEW)
                return
            parts = await database.read(piece_rows.list_parts, ACME, upload_id, 0, 10)
            await world.complete(bucket, found, *parts)


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:]))

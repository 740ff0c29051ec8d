"""Unpack a layer whose blob never ends, as a service does that is then killed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from registry.image_roots.layer_store import LayerStore
from tests.busybox_images import file, folder, gzipped, tar_of
from tests.layer_worlds import FIRST, image_digest, wanted

LAYER = gzipped(tar_of(folder("d"), file("d/a", b"a" * 5000), file("d/.wh.b"), file("c")))


@asynccontextmanager
async def _open(_digest: str) -> AsyncIterator[AsyncIterator[bytes]]:
    async def parts() -> AsyncIterator[bytes]:
        yield LAYER.data[:100]
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        await asyncio.Event().wait()

    yield parts()


def main(at: str) -> None:
    """Do it."""
    store = LayerStore(Path(at), FIRST)
    asyncio.run(store.unpack("account", image_digest(1), [wanted(LAYER)], _open))


if __name__ == "__main__":
    main(sys.argv[1])

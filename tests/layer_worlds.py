"""A store of layers in a folder, and blobs to unpack into it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from registry.image_roots.layer_store import LayerStore, WantedLayer
from tests.busybox_images import Layer, digest_of

FIRST: Final = 300_000 if os.geteuid() == 0 else None
_PART: Final = 64 * 1024


def wanted(layer: Layer) -> WantedLayer:
    """Return a layer as a store is asked for it."""
    return WantedLayer(layer.diff_id.removeprefix("sha256:"), digest_of(layer.data))


def image_digest(number: int) -> str:
    """Return the digest of an image that only has a number."""
    return f"sha256:{number:064x}"


@dataclass
class LayerWorld:
    """Stores over one folder, each as another process would have, and what they were given."""

    folder: Path
    blobs: dict[str, bytes] = field(default_factory=dict)
    opened: list[str] = field(default_factory=list)
    """The blobs that were asked for, in order."""

    def store(self, **bounds: int) -> LayerStore:
        """Return a store."""
        return LayerStore(self.folder, FIRST, **bounds)

    async def unpack(
        self,
        *layers: Layer,
        number: int = 1,
        account: str = "account",
        store: LayerStore | None = None,
    ) -> Sequence[Path]:
        """Unpack an image of layers."""
        self.blobs.update((digest_of(each.data), each.data) for each in layers)
        asked = [wanted(each) for each in layers]
        return await (store or self.store()).unpack(account, image_digest(number), asked, self.open)

    @asynccontextmanager
    async def open(self, digest: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a blob."""
        self.opened.append(digest)
        data = self.blobs[digest]

        async def parts() -> AsyncIterator[bytes]:
            for at in range(0, len(data), _PART):
                yield data[at : at + _PART]

        yield parts()

    def left(self) -> dict[str, list[str]]:
        """Return what is in each of the store's folders."""
        return {
            each.name: sorted(below.name for below in each.iterdir())
            for each in (self.folder.iterdir() if self.folder.exists() else ())
        }

    @property
    def layers(self) -> list[str]:
        """Return the diff ids of the layers that are there, without their algorithm."""
        return self.left()["layers"]

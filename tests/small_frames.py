"""Small frames of sealed bytes, so that tests of crashes fill many of them with few bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from registry.blobstore.base import DataKey
from registry.blobstore.disk import copying, growing_file
from registry.blobstore.s3 import copying as s3_copying
from registry.blobstore.s3 import encodings
from registry.blobstore.sealed import (
    compression,
    frame_format,
    frames,
    layout,
    objects,
    staged,
    table,
)
from registry.blobstore.sealed.frame_format import OVERHEAD
from tests import packed_bytes

SMALL_BYTES: Final = 256
KEY: Final = DataKey(bytes(range(32)), b"an account")
PACKED_KEY: Final = DataKey(bytes(range(1, 33)), b"an account")
"""The key of bytes that a store which compresses should compress (`compressible`)."""
_MODULES: Final = (
    growing_file,
    frame_format,
    frames,
    layout,
    objects,
    staged,
    table,
    copying,
    encodings,
    s3_copying,
    packed_bytes,
)


def compressible(rng: random.Random, size: int) -> bytes:
    """Return bytes of which most pieces of `SMALL_BYTES` can be compressed, and the first can."""
    pieces = [b"%08d" % rng.randrange(10**8) * (SMALL_BYTES // 8)]
    for _ in range(size // SMALL_BYTES):
        if rng.random() < 0.4:
            pieces.append(rng.randbytes(SMALL_BYTES))
        else:
            pieces.append(rng.randbytes(8) * (SMALL_BYTES // 8))
    return b"".join(pieces)[:size]


@contextmanager
def small_frames() -> Iterator[None]:
    """Have frames of `SMALL_BYTES` in the block; such objects cannot be read outside of it."""
    with pytest.MonkeyPatch.context() as patch:
        for module in _MODULES:
            for name, value in (
                ("FRAME_BYTES", SMALL_BYTES),
                ("SLOT_BYTES", SMALL_BYTES + OVERHEAD),
            ):
                if hasattr(module, name):
                    patch.setattr(module, name, value)
        patch.setattr(compression, "_LEAST_BYTES", 0)
        yield

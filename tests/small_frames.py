"""Small frames of sealed bytes, so that tests of crashes fill many of them with few bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from registry.blobstore import (
    copying,
    sealed_format,
    sealed_frames,
    sealed_growing,
    sealed_object,
    sealed_staged,
)
from registry.blobstore.base import DataKey
from registry.blobstore.sealed_format import OVERHEAD

SMALL_BYTES: Final = 256
KEY: Final = DataKey(bytes(range(32)), b"an account")
_MODULES: Final = (
    sealed_format,
    sealed_frames,
    sealed_growing,
    sealed_object,
    sealed_staged,
    copying,
)


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
        yield

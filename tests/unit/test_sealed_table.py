"""The table of a packed object: what is none is refused, and what cannot be read is nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from registry.blobstore.base import DataKey
from registry.blobstore.sealed.frame_format import FrameCipher, SealBroken
from registry.blobstore.sealed.table import read_table
from tests.packed_bytes import packed_bytes

KEY = DataKey(bytes(32), b"account")
DATA = b"of an object " * 1000


def packed() -> tuple[FrameCipher, bytes]:
    cipher = FrameCipher.new(KEY, "object", is_packed=True)
    return cipher, packed_bytes(cipher, DATA)


def test_a_table_is_read_by_the_size_at_its_end() -> None:
    cipher, stored = packed()
    found = read_table(cipher, len(stored), len(DATA), reader(stored))
    assert found is not None
    assert found[1] == len(DATA)


@pytest.mark.parametrize("stored_size", [0, 10, 70])
def test_bytes_too_few_for_any_table_are_refused(stored_size: int) -> None:
    cipher, stored = packed()
    with pytest.raises(SealBroken, match="there is no table"):
        read_table(cipher, stored_size, None, reader(stored))


def test_a_size_that_its_frames_cannot_have_is_refused_before_any_memory_is_taken() -> None:
    cipher, stored = packed()
    claiming = stored[:-8] + (1 << 60).to_bytes(8, "big")
    with pytest.raises(SealBroken, match="fewer frames than"):
        read_table(cipher, len(claiming), None, reader(claiming))


@pytest.mark.parametrize("reads", [0, 1])
def test_what_cannot_be_read_without_waiting_is_nothing(reads: int) -> None:
    cipher, stored = packed()
    assert read_table(cipher, len(stored), None, reader(stored, reads)) is None


def reader(stored: bytes, reads: int = 99) -> Callable[[memoryview, int], bool]:
    """Return what reads so often, and then no more."""
    left = iter(range(reads))

    def read(into: memoryview, offset: int) -> bool:
        into[:] = stored[offset : offset + len(into)]
        return next(left, None) is not None

    return read

"""The end of a packed object: a sealed table of its frames, and its size.

The table is sealed in blocks, so that a reader verifies a tag before it trusts or allocates
anything::

    block 0 | block 1 | … | size (8 bytes)
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from typing import Final

from registry.blobstore.sealed.frame_format import (
    FRAME_BYTES,
    HEADER_BYTES,
    OVERHEAD,
    FrameCipher,
    FrameKind,
    SealBroken,
)
from registry.blobstore.sealed.layout import ENTRY_BYTES, Packed
from registry.blobstore.staging import check_size

SIZE_BYTES: Final = 8
BLOCK_ENTRIES: Final = 16 * 1024
"""Frames per block of the table, which are 16 GiB of an object."""
_SMALL_BYTES: Final = 16 * 1024
"""A table up to this size (of an object of 4 GiB) is read without a thread if it is in memory."""

Read = Callable[[memoryview, int], bool]
"""Fills a view with the bytes from an offset; returns False if it cannot."""


def sealed_table(cipher: FrameCipher, packed: Packed, size: int) -> bytes:
    """Return the table and size that end an object of `size` bytes; `packed` has all its frames."""
    end = size.to_bytes(SIZE_BYTES, "big")
    blocks = []
    for number, start in enumerate(range(0, len(packed.entries), BLOCK_ENTRIES)):
        entries = big_endian(packed.entries[start : start + BLOCK_ENTRIES])
        plaintext = memoryview(end + entries.tobytes())
        block = memoryview(bytearray(len(plaintext) + OVERHEAD))
        cipher.seal(FrameKind.TABLE, number, plaintext, block)
        blocks.append(block)
    return b"".join((*blocks, end))


def read_table(
    cipher: FrameCipher, stored_size: int, size: int | None, read: Read, *, wait: bool = True
) -> tuple[Packed, int] | None:
    """Return the layout and the size of a packed object from the end of its stored bytes.

    Return None if `read` fails or, without `wait`, if the table is large. `size` is the expected
    size, or None for any.

    Raise `ObjectDamaged` if the object has another size, `SealBroken` if the table was not made for
    this object, or was changed.
    """
    if stored_size < HEADER_BYTES + SIZE_BYTES:
        raise SealBroken("there is no table")
    end = memoryview(bytearray(SIZE_BYTES))
    if not read(end, stored_size - SIZE_BYTES):
        return None
    claimed = int.from_bytes(end, "big")
    check_size(claimed, size)
    count = claimed // FRAME_BYTES + 1
    if HEADER_BYTES + count * (ENTRY_BYTES + OVERHEAD) + table_bytes(count) > stored_size:
        raise SealBroken("there are fewer frames than the object's size needs")
    start = stored_size - SIZE_BYTES - table_bytes(count)
    if not wait and stored_size - start > _SMALL_BYTES:
        return None
    entries = array("I")
    offset = start
    for number, first in enumerate(range(0, count, BLOCK_ENTRIES)):
        length = SIZE_BYTES + ENTRY_BYTES * min(BLOCK_ENTRIES, count - first)
        block = memoryview(bytearray(length + OVERHEAD))
        if not read(block, offset):
            return None
        found = cipher.open(FrameKind.TABLE, number, block, memoryview(bytearray(length)))
        if found[:SIZE_BYTES] != end:
            raise SealBroken("the table is that of an object of another size")
        entries.frombytes(found[SIZE_BYTES:])
        offset += len(block)
    packed = Packed(big_endian(entries))
    if packed.start(count) != start:
        raise SealBroken("the frames do not end where the table begins")
    return packed, claimed


def claimed_size(stored: bytes) -> int:
    """Return the size that a packed object's stored bytes claim; the claim is not verified."""
    return int.from_bytes(stored[-SIZE_BYTES:], "big")


def table_bytes(count: int) -> int:
    """Return the size in bytes of the table of `count` frames, without the size field after it."""
    blocks = -(-count // BLOCK_ENTRIES)
    return ENTRY_BYTES * count + blocks * (SIZE_BYTES + OVERHEAD)


def big_endian(entries: array[int]) -> array[int]:
    """Return a copy of entries, converted between the processor's byte order and big-endian."""
    found = entries[:]
    if sys.byteorder == "little":
        found.byteswap()
    return found

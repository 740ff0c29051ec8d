"""Seal whole bytes at once, with the frames and the table of a packed object."""

from __future__ import annotations

from registry.blobstore.base import DataKey
from registry.blobstore.sealed.compression import is_worth_compressing
from registry.blobstore.sealed.frame_format import (
    FRAME_BYTES,
    FrameCipher,
    FrameKind,
    sealed_bytes,
)
from registry.blobstore.sealed.frames import scratch, seal_frame
from registry.blobstore.sealed.layout import Packed, Record
from registry.blobstore.sealed.table import sealed_table


def compressed_bytes(data: bytes, data_key: DataKey, object_id: str) -> bytes:
    """Return the stored bytes of a small object, compressed if that pays."""
    if not is_worth_compressing(memoryview(data)[:FRAME_BYTES]):
        return sealed_bytes(data, data_key, object_id)
    cipher = FrameCipher.new(data_key, object_id, is_packed=True)
    return packed_bytes(cipher, data)


def packed_bytes(cipher: FrameCipher, data: bytes) -> bytes:
    """Return the stored bytes of a small object, with the frames and the table of a packed one."""
    packed, stored = Packed(), [cipher.header]
    last = len(data) // FRAME_BYTES
    for number in range(last + 1):
        piece = memoryview(data)[number * FRAME_BYTES : (number + 1) * FRAME_BYTES]
        kind = FrameKind.LAST if number == last else FrameKind.WHOLE
        kind, length = seal_frame(cipher, kind, number, piece, scratch())
        packed.add(Record(kind, packed.start(number), length, len(piece)))
        stored.append(bytes(scratch()[:length]))
    return b"".join((*stored, sealed_table(cipher, packed, len(data))))

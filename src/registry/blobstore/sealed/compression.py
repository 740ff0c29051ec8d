"""Compress and decompress pieces of sealed objects with zstd.

Each piece is compressed separately, so that reading a range needs only the pieces in it. The
functions may be called from any thread, and let other threads run meanwhile.
"""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

import zstandard

_LEVEL: Final = 1
_MOST_OF_OBJECT: Final = 0.9
"""An object is compressed if its samples shrink to less than this fraction."""
_MOST_OF_PIECE: Final = 15 / 16
"""A piece of a compressed object is stored compressed if it shrinks to less than this fraction."""
_EXTRA_BYTES: Final = 52
"""Bytes that packing adds to an object of one frame: the frame's entry, and the table."""
_LEAST_BYTES: Final = 4096
"""A file of up to this size takes one block of the disk, so compressing it saves nothing."""
_SAMPLES: Final = 4
_SAMPLE_BYTES: Final = 16 * 1024
_WINDOW_BYTES: Final = 1 << 20
_COMPRESSED: Final = (
    b"\x1f\x8b",  # gzip
    b"\x28\xb5\x2f\xfd",  # zstd
    b"\xfd7zXZ\x00",
    b"BZh",
    b"\x04\x22\x4d\x18",  # lz4
    b"7z\xbc\xaf\x27\x1c",
    b"PK\x03\x04",  # zip, jar, wheel
    b"\x89PNG\r\n\x1a\n",
    b"\xff\xd8\xff",  # JPEG
    b"ENTREPOT",  # sealed bytes
)
"""Magic numbers of bytes that are already compressed or encrypted."""


class _Codec(NamedTuple):
    compressor: zstandard.ZstdCompressor
    decompressor: zstandard.ZstdDecompressor


_local = threading.local()


def is_worth_compressing(piece: memoryview) -> bool:
    """Return True if compressing an object that begins with this piece saves space.

    Four samples of the piece are compressed: the first bytes of a tar are always compressible.
    """
    if len(piece) <= _LEAST_BYTES or bytes(piece[:8]).startswith(_COMPRESSED):
        return False
    samples = piece
    if len(piece) > _SAMPLES * _SAMPLE_BYTES:
        step = (len(piece) - _SAMPLE_BYTES) // (_SAMPLES - 1)
        starts = range(0, _SAMPLES * step, step)
        samples = memoryview(b"".join(piece[at : at + _SAMPLE_BYTES] for at in starts))
    found = _codec().compressor.compress(samples)
    return len(found) + _EXTRA_BYTES < len(samples) * _MOST_OF_OBJECT


def compressed(piece: memoryview) -> bytes | None:
    """Return a piece as a zstd frame, or None if compression saves too little."""
    found = _codec().compressor.compress(piece)
    return found if len(found) < len(piece) * _MOST_OF_PIECE else None


def decompress_into(frame: memoryview, out: memoryview) -> int | None:
    """Decompress a zstd frame into `out`; return the number of bytes written.

    Return None if the bytes are not a zstd frame, or do not fit into `out`. Besides `out`,
    decompression uses at most zstd's window of 1 MiB of memory, whatever the frame claims.
    """
    try:
        with _codec().decompressor.stream_reader(frame) as reader:
            count = reader.readinto(out)
            return None if reader.read(1) else count
    except zstandard.ZstdError:
        return None


def _codec() -> _Codec:
    """Return this thread's zstd codec: creating one costs more than compressing a small piece."""
    found: _Codec | None = getattr(_local, "codec", None)
    if found is None:
        found = _local.codec = _Codec(
            zstandard.ZstdCompressor(level=_LEVEL),
            zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES),
        )
    return found

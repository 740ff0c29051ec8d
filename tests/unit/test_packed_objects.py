"""The layout, the table and the pieces of compressed objects."""

from __future__ import annotations

import random
import tracemalloc
from array import array
from collections.abc import Callable
from contextlib import closing
from typing import Final
from uuid import UUID

import pytest
import zstandard

from registry.blobstore.base import ObjectDamaged
from registry.blobstore.sealed.compression import compressed, decompress_into, is_worth_compressing
from registry.blobstore.sealed.frame_format import (
    FRAME_BYTES,
    HEADER_BYTES,
    OVERHEAD,
    FrameCipher,
    FrameKind,
    SealBroken,
)
from registry.blobstore.sealed.frames import open_frame
from registry.blobstore.sealed.layout import ENTRY_BYTES, Packed, Record, entry_of
from registry.blobstore.sealed.table import SIZE_BYTES, sealed_table, table_bytes
from registry.errors import StoreUnavailable
from tests.memory_store import MemoryFiles
from tests.packed_bytes import packed_bytes
from tests.small_frames import KEY

OBJECT: Final = str(UUID(int=9))
RNG: Final = random.Random(4)
NOISE: Final = RNG.randbytes(FRAME_BYTES)
TEXT: Final = RNG.randbytes(FRAME_BYTES // 2).hex().encode()


def cipher() -> FrameCipher:
    return FrameCipher.new(KEY, OBJECT, is_packed=True)


def read(stored: bytes, size: int | None = None) -> bytes:
    files = MemoryFiles()
    files.objects[OBJECT] = stored
    with closing(files.open(OBJECT, size, KEY)) as found:
        return b"".join(map(bytes, found.chunks()))


def entry(kind: int, payload: int) -> int:
    return int.from_bytes(entry_of(FrameKind(kind), payload), "big")


def framed(key: FrameCipher, kind: FrameKind, number: int, payload: bytes) -> bytes:
    """Return a frame with its entry, whatever its payload is."""
    out = memoryview(bytearray(len(payload) + OVERHEAD))
    key.seal(kind, number, payload, out)
    return entry_of(kind, len(payload)) + bytes(out)


@pytest.mark.parametrize(
    ("piece", "expected"),
    [
        (TEXT, True),
        (TEXT[:5000], True),
        (TEXT[:4096], False),  # it needs a block of the disk anyway
        (b'{"mediaType": "application/json", "size": 0}' * 99, True),
        (NOISE[:5000], False),
        (NOISE, False),
        (b"", False),
        (b"a few bytes", False),
        (TEXT[:4096] + NOISE[4096:], False),  # the first header of a tar of pictures
        (NOISE[:4096] + TEXT[4096:], True),
        *((begin + TEXT, False) for begin in (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04")),
    ],
)
def test_samples_tell_whether_compression_pays(piece: bytes, *, expected: bool) -> None:
    assert is_worth_compressing(memoryview(piece)) is expected


def test_a_piece_that_does_not_shrink_is_left_as_it_is() -> None:
    assert compressed(memoryview(NOISE)) is None
    assert compressed(memoryview(b"")) is None
    found = compressed(memoryview(TEXT))
    assert found is not None
    out = memoryview(bytearray(FRAME_BYTES))
    assert decompress_into(memoryview(found), out) == FRAME_BYTES
    assert out == TEXT


def test_a_zstd_frame_that_grows_beyond_a_piece_takes_no_memory() -> None:
    """Whether it tells its size or not, or asks for a wide window."""
    zeros = bytes(1 << 20)
    bombs = []
    for window in (20, 27):
        parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=window)
        maker = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        bombs.append(b"".join(maker.compress(zeros) for _ in range(99)) + maker.flush())
    bombs.append(zstandard.ZstdCompressor().compress(bytes(FRAME_BYTES + 1)))
    bombs += [b"", b"no frame", bombs[0][:40]]
    out = memoryview(bytearray(FRAME_BYTES))
    decompress_into(memoryview(compressed(memoryview(zeros)) or b""), out)
    tracemalloc.start()
    try:
        for bomb in bombs:
            count = decompress_into(memoryview(bomb), out)
            assert count is None or count < FRAME_BYTES
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_frame_is_refused_with_another_entry_or_length() -> None:
    key = cipher()
    out = memoryview(bytearray(FRAME_BYTES))
    small = zstandard.compress(TEXT[:500])
    frame = framed(key, FrameKind.LAST_ZSTD, 0, small)
    right = Record(FrameKind.LAST_ZSTD, 0, len(frame), 500)
    assert open_frame(key, 0, right, memoryview(frame), out) == TEXT[:500]
    for changed in (
        frame[:3] + bytes([frame[3] ^ 1]) + frame[4:],
        b"\x02" + frame[1:],
        frame[:-1],
        frame + b"\0",
    ):
        with pytest.raises(SealBroken):
            open_frame(key, 0, right._replace(stored=len(changed)), memoryview(changed), out)
    with pytest.raises(SealBroken):
        open_frame(key, 0, right._replace(length=499), memoryview(frame), out)
    whole = framed(key, FrameKind.WHOLE_ZSTD, 0, small)
    short = Record(FrameKind.WHOLE_ZSTD, 0, len(whole), FRAME_BYTES)
    with pytest.raises(SealBroken):  # a whole frame has a whole piece
        open_frame(key, 0, short, memoryview(whole), out)


def ended(key: FrameCipher, frames: bytes, entries: list[int], size: int) -> bytes:
    return key.header + frames + sealed_table(key, Packed(array("I", entries)), size)


def a_short_last_piece(key: FrameCipher) -> bytes:
    payload = zstandard.compress(TEXT[:499])
    frame = framed(key, FrameKind.LAST_ZSTD, 0, payload)
    return ended(key, frame, [entry(5, len(payload))], 500)


def a_long_last_piece(key: FrameCipher) -> bytes:
    payload = zstandard.compress(TEXT[:501])
    frame = framed(key, FrameKind.LAST_ZSTD, 0, payload)
    return ended(key, frame, [entry(5, len(payload))], 500)


def a_raw_piece_of_another_length(key: FrameCipher) -> bytes:
    return ended(key, framed(key, FrameKind.LAST, 0, TEXT[:400]), [entry(2, 400)], 500)


def a_partial_frame(key: FrameCipher) -> bytes:
    return ended(key, framed(key, FrameKind.PARTIAL, 0, TEXT[:500]), [entry(3, 500)], 500)


def a_whole_frame_as_the_last(key: FrameCipher) -> bytes:
    payload = zstandard.compress(TEXT)
    frame = framed(key, FrameKind.WHOLE_ZSTD, 0, payload)
    return ended(key, frame, [entry(4, len(payload))], 500)


def one_entry_too_many(key: FrameCipher) -> bytes:
    frame = framed(key, FrameKind.LAST, 0, TEXT[:500])
    return ended(key, frame, [entry(2, 500), entry(2, 0)], 500)


def a_gap_before_the_table(key: FrameCipher) -> bytes:
    frame = framed(key, FrameKind.LAST, 0, TEXT[:500])
    return ended(key, frame + b"\0", [entry(2, 500)], 500)


@pytest.mark.parametrize(
    "make",
    [
        a_short_last_piece,
        a_long_last_piece,
        a_raw_piece_of_another_length,
        a_partial_frame,
        a_whole_frame_as_the_last,
        one_entry_too_many,
        a_gap_before_the_table,
    ],
)
def test_what_no_writer_makes_is_refused_even_if_it_opens(
    make: Callable[[FrameCipher], bytes],
) -> None:
    right = framed(key := cipher(), FrameKind.LAST, 0, TEXT[:500])
    assert read(ended(key, right, [entry(2, 500)], 500), 500) == TEXT[:500]
    for size in (500, None):
        with pytest.raises((ObjectDamaged, StoreUnavailable)):
            read(make(cipher()), size)


def test_a_size_that_the_end_claims_costs_nothing() -> None:
    stored = packed_bytes(cipher(), TEXT[:500])
    tracemalloc.start()
    try:
        for claimed in (2**64 - 1, 2**40, 501, FRAME_BYTES, 0):
            lie = stored[:-SIZE_BYTES] + claimed.to_bytes(SIZE_BYTES, "big")
            for size in (500, None, claimed):
                with pytest.raises(ObjectDamaged):
                    read(lie, size)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    for cut in (0, 8, HEADER_BYTES, HEADER_BYTES + SIZE_BYTES, len(stored) - 1):
        with pytest.raises(ObjectDamaged):
            read(stored[:cut], None)


def test_a_table_of_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is bound to its place; none may be left out, repeated or moved."""
    monkeypatch.setattr("registry.blobstore.sealed.table.BLOCK_ENTRIES", 1)
    data = bytes(3 * FRAME_BYTES + 9)
    stored = packed_bytes(cipher(), data)
    assert read(stored, len(data)) == read(stored) == data
    block = SIZE_BYTES + ENTRY_BYTES + OVERHEAD
    assert table_bytes(4) == 4 * block
    start = len(stored) - SIZE_BYTES - 4 * block
    blocks = [stored[start + k * block : start + (k + 1) * block] for k in range(4)]
    for order in ((0, 1, 3, 2), (0, 1, 1, 3), (1, 2, 3), (0, 1, 2, 3, 3)):
        table = b"".join(blocks[k] for k in order)
        with pytest.raises(ObjectDamaged):
            read(stored[:start] + table + stored[-SIZE_BYTES:], len(data))


def test_a_layout_goes_from_entry_to_entry_and_believes_no_other() -> None:
    packed = Packed()
    packed.add(Record(FrameKind.WHOLE, HEADER_BYTES, FRAME_BYTES + 32, FRAME_BYTES))
    packed.add(Record(FrameKind.WHOLE_ZSTD, packed.start(1), 132, FRAME_BYTES))
    assert [packed.start(k) - HEADER_BYTES for k in (1, 2)] == [FRAME_BYTES + 32, FRAME_BYTES + 164]
    assert [packed.before(packed.start(k)) for k in (0, 1, 2)] == [0, 1, 2]
    assert packed.before(packed.start(2) - 1) == 1
    assert packed.before(0) == 0
    assert packed.record(1, FRAME_BYTES).stored == 132
    for number, length in ((0, 5), (1, 5)):
        with pytest.raises(SealBroken):
            packed.record(number, length)
    packed.cut(1)
    assert packed.before(2**40) == 1
    for lie in (
        0,
        entry(1, 5),
        entry(2, FRAME_BYTES),
        entry(4, FRAME_BYTES),
        entry(6, 40),
        2**32 - 1,
    ):
        with pytest.raises(SealBroken):
            Packed(array("I", [lie])).record(0, FRAME_BYTES)

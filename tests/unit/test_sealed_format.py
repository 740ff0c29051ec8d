"""The format of sealed objects: its test vectors, and a reader written from its description."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

import pytest
import zstandard
from blake3 import blake3
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from registry.blobstore.base import DataKey
from registry.blobstore.sealed.compression import compressed, decompress_into
from registry.blobstore.sealed.frame_format import (
    FRAME_BYTES,
    HEADER_BYTES,
    OVERHEAD,
    SLOT_BYTES,
    FrameCipher,
    FrameKind,
    SealBroken,
    sealed_bytes,
    sealed_size,
    unsealed_size,
)
from tests.live import ROOT
from tests.memory_store import MemoryFiles
from tests.packed_bytes import packed_bytes

VECTORS: Final[dict[str, Any]] = json.loads((ROOT / "tests/vectors/sealed_format.json").read_text())
OBJECT: Final[str] = VECTORS["object_id"]
KEY: Final = DataKey(bytes.fromhex(VECTORS["data_key"]), VECTORS["context"].encode())
OTHER: Final = "3f0b1c7e-52a4-4d1b-9a60-0c6f2d9e8b72"


def content(size: int) -> bytes:
    return (bytes(range(251)) * (size // 251 + 1))[:size]


def with_nonces(monkeypatch: pytest.MonkeyPatch, *nonces: str) -> FrameCipher:
    """Return a cipher whose salt and nonces are those of the vectors."""
    made = iter([bytes.fromhex(each) for each in (VECTORS["salt"], *nonces)])
    monkeypatch.setattr(os, "urandom", lambda _: next(made))
    return FrameCipher.new(KEY, OBJECT)


def sealed(cipher: FrameCipher, kind: FrameKind, number: int, plaintext: bytes) -> bytes:
    out = memoryview(bytearray(len(plaintext) + OVERHEAD))
    return bytes(out[: cipher.seal(kind, number, memoryview(plaintext), out)])


def opened(cipher: FrameCipher, kind: FrameKind, number: int, frame: bytes) -> bytes:
    return bytes(cipher.open(kind, number, memoryview(frame), memoryview(bytearray(SLOT_BYTES))))


def stored(cipher: FrameCipher, data: bytes) -> bytes:
    whole = len(data) // FRAME_BYTES
    parts = [data[k * FRAME_BYTES : (k + 1) * FRAME_BYTES] for k in range(whole + 1)]
    kinds = [FrameKind.WHOLE] * whole + [FrameKind.LAST]
    frames = [
        sealed(cipher, kind, k, part)
        for k, (kind, part) in enumerate(zip(kinds, parts, strict=True))
    ]
    return cipher.header + b"".join(frames)


def read_by_another_program(stored: bytes, data_key: bytes, context: bytes, name: str) -> bytes:
    """Read an object as the document says, with nothing of the codec."""
    salt, commitment = stored[12:44], stored[44:76]
    info = b"Entrepot sealed object" + stored[:12]
    info += len(context).to_bytes(2, "big") + context + name.encode()
    secret = hmac.digest(salt, data_key, "sha256")
    first = hmac.digest(secret, info + b"\x01", "sha256")
    second = hmac.digest(secret, first + info + b"\x02", "sha256")
    assert second == commitment
    if stored[10] == 1:
        return read_packed_by_another_program(stored, AESGCM(first))
    found, number, offset = b"", 0, 76
    while offset < len(stored):
        frame = stored[offset : offset + 2**20 + 28]
        size = len(frame) - 28
        kind = 1 if size == 2**20 else 2
        aad = bytes([kind]) + number.to_bytes(8, "big") + size.to_bytes(4, "big")
        found += AESGCM(first).decrypt(frame[:12], frame[12:], aad)
        number, offset = number + 1, offset + len(frame)
    return found


def read_packed_by_another_program(stored: bytes, aead: AESGCM) -> bytes:
    """Read the frames of an object whose compression is 1, as the document says."""

    def opened(sealed: bytes, kind: int, number: int) -> bytes:
        size = len(sealed) - 28
        aad = bytes([kind]) + number.to_bytes(8, "big") + size.to_bytes(4, "big")
        return aead.decrypt(sealed[:12], sealed[12:], aad)

    size = int.from_bytes(stored[-8:], "big")
    count = size // 2**20 + 1
    blocks = [min(16384, count - first) for first in range(0, count, 16384)]
    offset = table = len(stored) - 8 - sum(36 + 4 * entries for entries in blocks)
    entries = b""
    for number, length in enumerate(blocks):
        block = opened(stored[offset : offset + 36 + 4 * length], 6, number)
        assert block[:8] == stored[-8:]
        entries += block[8:]
        offset += 36 + 4 * length
    found, offset = b"", 76
    for number in range(count):
        entry = entries[4 * number : 4 * number + 4]
        kind, length = entry[0], int.from_bytes(entry[1:], "big")
        assert stored[offset : offset + 4] == entry
        payload = opened(stored[offset + 4 : offset + 32 + length], kind, number)
        assert kind in ((2, 5) if number == count - 1 else (1, 4))
        piece = payload if kind in (1, 2) else zstandard.decompress(payload)
        assert len(piece) == (size % 2**20 if number == count - 1 else 2**20)
        found, offset = found + piece, offset + 32 + length
    assert offset == table
    return found


@pytest.mark.parametrize("vector", VECTORS["objects"], ids=lambda each: str(each["size"]))
def test_the_vectors(monkeypatch: pytest.MonkeyPatch, vector: dict[str, Any]) -> None:
    cipher = with_nonces(monkeypatch, *vector["nonces"])
    data = content(vector["size"])
    found = stored(cipher, data)
    assert found[:HEADER_BYTES].hex() == VECTORS["header"]
    assert len(found) == vector["stored_size"] == sealed_size(len(data))
    assert found.endswith(bytes.fromhex(vector["last_frame"]))
    assert hashlib.sha256(found).hexdigest() == vector["sha256_of_stored"]
    assert read_by_another_program(found, KEY.plaintext, KEY.context, OBJECT) == data


def test_the_vector_of_a_partial_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    vector = VECTORS["partial"]
    cipher = with_nonces(monkeypatch, vector["nonce"])
    data = content(vector["size"])
    assert sealed(cipher, FrameKind.PARTIAL, vector["number"], data).hex() == vector["frame"]
    frame = bytes.fromhex(vector["frame"])
    again = FrameCipher.of_header(cipher.header, KEY, OBJECT)
    assert opened(again, FrameKind.PARTIAL, vector["number"], frame) == data


@pytest.mark.parametrize("vector", VECTORS["packed"], ids=lambda each: str(each["size"]))
def test_the_vectors_of_compressed_objects(vector: dict[str, Any]) -> None:
    """Another version of zstd may give other bytes, so they are only read."""
    data, found = content(vector["size"]), bytes.fromhex(vector["stored"])
    assert read_by_another_program(found, KEY.plaintext, KEY.context, OBJECT) == data
    files = MemoryFiles()
    files.objects[OBJECT] = found
    with closing(files.open(OBJECT, len(data), KEY)) as stored:
        assert b"".join(map(bytes, stored.chunks())) == data
    cipher = FrameCipher.new(KEY, OBJECT, is_packed=True)
    made = packed_bytes(cipher, data)
    assert made[:11] == found[:11]
    assert read_by_another_program(made, KEY.plaintext, KEY.context, OBJECT) == data


def test_the_document_quotes_the_vectors() -> None:
    page = (ROOT / "docs/reference/sealed-format.md").read_text()
    header = VECTORS["header"]
    for each in (
        VECTORS["data_key"],
        VECTORS["context"],
        OBJECT,
        f"{header[:32]}…{header[-16:]}",
        VECTORS["objects"][1]["last_frame"],
        VECTORS["packed"][0]["stored"][-96:-16],
    ):
        assert each in page


@pytest.mark.parametrize(
    ("key", "object_id"),
    [
        (replace(KEY, plaintext=bytes(32)), OBJECT),
        (replace(KEY, context=b"another account"), OBJECT),
        (replace(KEY, context=KEY.context + OBJECT[:1].encode()), OBJECT[1:]),
        (KEY, OTHER),
    ],
)
def test_a_header_is_refused_for_another_key_account_or_object(
    key: DataKey, object_id: str
) -> None:
    header = FrameCipher.new(KEY, OBJECT).header
    with pytest.raises(SealBroken, match="another"):
        FrameCipher.of_header(header, key, object_id)


def test_each_byte_of_a_header_counts() -> None:
    header = FrameCipher.new(KEY, OBJECT).header
    FrameCipher.of_header(header, KEY, OBJECT)
    for offset in range(HEADER_BYTES):
        changed = bytearray(header)
        changed[offset] ^= 1
        with pytest.raises(SealBroken):
            FrameCipher.of_header(bytes(changed), KEY, OBJECT)
    for cut in (b"", header[:-1], header + b"\0"):
        with pytest.raises(SealBroken):
            FrameCipher.of_header(cut, KEY, OBJECT)


def test_a_frame_opens_only_as_what_it_is_and_where_it_is() -> None:
    cipher = FrameCipher.new(KEY, OBJECT)
    frame = sealed(cipher, FrameKind.WHOLE, 3, b"some bytes")
    assert opened(cipher, FrameKind.WHOLE, 3, frame) == b"some bytes"
    for kind, number, found in (
        (FrameKind.LAST, 3, frame),
        (FrameKind.PARTIAL, 3, frame),
        (FrameKind.WHOLE, 2, frame),
        (FrameKind.WHOLE, 3, frame[:-1]),
        (FrameKind.WHOLE, 3, frame + b"\0"),
        (FrameKind.WHOLE, 3, frame[: OVERHEAD - 1]),
        (FrameKind.WHOLE, 3, b""),
    ):
        with pytest.raises(SealBroken):
            opened(cipher, kind, number, found)
    with pytest.raises(SealBroken):
        opened(FrameCipher.new(KEY, OBJECT), FrameKind.WHOLE, 3, frame)


@pytest.mark.parametrize("size", [0, 1, 4096, (1 << 17) - 1, 1 << 17, 1 << 20, (1 << 20) + 1])
def test_objects_that_are_sealed_at_once_are_those_of_the_format(size: int) -> None:
    data = content(size)
    made = sealed_bytes(data, KEY, OBJECT)
    assert len(made) == sealed_size(size)
    assert read_by_another_program(made, KEY.plaintext, KEY.context, OBJECT) == data
    assert made != sealed_bytes(data, KEY, OBJECT)


def test_no_two_seals_have_the_same_nonce() -> None:
    """Each takes new bytes of the system's generator, also for the same bytes and place."""
    cipher = FrameCipher.new(KEY, OBJECT)
    frames = [sealed(cipher, FrameKind.LAST, 0, b"x") for _ in range(1000)]
    assert len({frame[:12] for frame in frames}) == 1000
    assert len({FrameCipher.new(KEY, OBJECT).header[12:44] for _ in range(100)}) == 100


def test_sizes_are_told_from_each_other() -> None:
    for size in (0, 1, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 5 * FRAME_BYTES, 2**40 + 7):
        assert unsealed_size(sealed_size(size)) == size
    for stored_size in (
        0,
        HEADER_BYTES,
        HEADER_BYTES + OVERHEAD - 1,
        HEADER_BYTES + SLOT_BYTES,
        HEADER_BYTES + SLOT_BYTES + OVERHEAD - 1,
    ):
        with pytest.raises(SealBroken):
            unsealed_size(stored_size)


def test_a_data_key_shows_nothing_and_has_its_length() -> None:
    assert "plaintext" not in repr(KEY)
    for size in (0, 16, 31, 33):
        with pytest.raises(ValueError, match="32 bytes"):
            DataKey(bytes(size), b"")


@pytest.mark.parametrize("work", ["seal", "open", "checksum", "compress", "decompress"])
def test_frames_are_worked_on_beside_other_threads(
    monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    """The interpreter's lock is released: with no time slices, another thread still runs."""
    cipher = FrameCipher.new(KEY, OBJECT)
    plaintext, out = memoryview(bytearray(FRAME_BYTES)), memoryview(bytearray(SLOT_BYTES))
    monkeypatch.setattr(os, "urandom", bytes)  # it releases the lock too
    cipher.seal(FrameKind.WHOLE, 0, plaintext, out)
    hasher = blake3()
    text = memoryview(bytes(range(256)) * (FRAME_BYTES // 256))
    smaller = memoryview(compressed(text) or b"")
    room = memoryview(bytearray(FRAME_BYTES))
    calls: dict[str, Callable[[], object]] = {
        "seal": lambda: cipher.seal(FrameKind.WHOLE, 0, plaintext, out),
        "open": lambda: cipher.open(FrameKind.WHOLE, 0, out, plaintext),
        "checksum": lambda: hasher.update(out),
        "compress": lambda: compressed(text),
        "decompress": lambda: decompress_into(smaller, room),
    }
    begun, seen, left = threading.Event(), threading.Event(), [3000]

    def run() -> None:
        begun.set()
        while left[0] and not seen.is_set():
            calls[work]()
            left[0] -= 1

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        thread = threading.Thread(target=run)
        thread.start()
        begun.wait()
        remained = left[0]
        seen.set()
        thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert remained, "the other thread ran only after all the work"

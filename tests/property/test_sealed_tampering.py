"""Random changes to the stored bytes of sealed objects: not one wrong byte comes out."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from contextlib import closing
from typing import Final

import pytest

from registry.blobstore.base import DataKey, ObjectDamaged
from registry.blobstore.sealed.frame_format import (
    HEADER_BYTES,
    NONCE_BYTES,
    OVERHEAD,
    FrameCipher,
    FrameKind,
    says_packed,
)
from registry.blobstore.sealed.layout import ENTRY_BYTES, entry_of
from registry.blobstore.sealed.table import SIZE_BYTES, claimed_size, table_bytes
from registry.errors import StoreUnavailable
from registry.oci.digest import digest_of
from tests.memory_store import MemoryFiles
from tests.small_frames import KEY, SMALL_BYTES, compressible, small_frames
from tests.soak import drawing, time_limit, times

TAMPERS: Final = times(14_000)
SIZES: Final = (0, 1, SMALL_BYTES - 1, SMALL_BYTES, SMALL_BYTES + 1, 5 * SMALL_BYTES, 900, 1300)
SLOT: Final = SMALL_BYTES + OVERHEAD


class Victim:
    """A sealed object, and others whose bytes may be put into it."""

    def __init__(self, rng: random.Random, size: int, *, compresses: bool) -> None:
        self.files = MemoryFiles(compresses=compresses)
        made = compressible if compresses else random.Random.randbytes
        self.data = made(rng, size)
        self.object_id = self.put(self.data)
        self.stored = self.files.objects[self.object_id]
        self.others = [
            self.files.objects[self.put(data, key)]
            for data in (self.data, made(rng, size))
            for key in (KEY, DataKey(KEY.plaintext, b"another account"), DataKey(bytes(32), b""))
        ]
        # As when its upload began again: the same bytes, key and id, but sealed anew.
        self.files.delete(self.object_id)
        self.put(made(rng, size), KEY, self.object_id)
        self.others.append(self.files.objects[self.object_id])

    def put(self, data: bytes, key: DataKey = KEY, object_id: str | None = None) -> str:
        name = object_id or str(uuid.uuid4())
        with closing(self.files.stage(name, None, key)) as staged:
            staged.write(memoryview(data))
            staged.commit(digest_of(data))
        return name


def parts_of(stored: bytes) -> list[bytes]:
    """Return what is behind the header: the frames; of a packed object also table and size."""
    if not says_packed(stored):
        return [stored[at : at + SLOT] for at in range(HEADER_BYTES, len(stored), SLOT)]
    parts, at = [], HEADER_BYTES
    end = len(stored) - SIZE_BYTES - table_bytes(claimed_size(stored) // SMALL_BYTES + 1)
    while at < end:
        length = ENTRY_BYTES + OVERHEAD + int.from_bytes(stored[at + 1 : at + ENTRY_BYTES], "big")
        parts.append(stored[at : at + length])
        at += length
    return [*parts, stored[end:-SIZE_BYTES], stored[-SIZE_BYTES:]]


def flip(rng: random.Random, victim: Victim) -> bytes:
    changed = bytearray(victim.stored)
    for _ in range(rng.choice((1, 1, 1, 2, 9))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(rng: random.Random, victim: Victim) -> bytes:
    return victim.stored[: rng.randrange(len(victim.stored))]


def cut_frames(rng: random.Random, victim: Victim) -> bytes:
    """Leave whole frames out at the end, perhaps with an end of the right size."""
    frames = parts_of(victim.stored)
    kept = b"".join(frames[: rng.randrange(len(frames))])
    return victim.stored[:HEADER_BYTES] + kept + rng.choice((b"", rng.randbytes(OVERHEAD)))


def extend(rng: random.Random, victim: Victim) -> bytes:
    more = rng.choice((rng.randbytes(rng.randint(1, SLOT)), rng.choice(parts_of(victim.stored))))
    return victim.stored + more


def shuffle(rng: random.Random, victim: Victim) -> bytes:
    frames = parts_of(victim.stored)
    first, second = rng.randrange(len(frames)), rng.randrange(len(frames))
    frames[first], frames[second] = frames[second], frames[first]
    return victim.stored[:HEADER_BYTES] + b"".join(frames)


def repeat(rng: random.Random, victim: Victim) -> bytes:
    frames = parts_of(victim.stored)
    frames[rng.randrange(len(frames))] = rng.choice(frames)
    return victim.stored[:HEADER_BYTES] + b"".join(frames)


def foreign_frame(rng: random.Random, victim: Victim) -> bytes:
    """Put in the same part of another object, account or staging."""
    parts, others = parts_of(victim.stored), parts_of(rng.choice(victim.others))
    number = rng.randrange(min(len(parts), len(others)))
    parts[number] = others[number]
    return victim.stored[:HEADER_BYTES] + b"".join(parts)


def foreign_end(rng: random.Random, victim: Victim) -> bytes:
    """Put in the last two parts of another: of packed objects, the table with its size."""
    parts, others = parts_of(victim.stored), parts_of(rng.choice(victim.others))
    return victim.stored[:HEADER_BYTES] + b"".join((*parts[:-2], *others[-2:]))


def foreign_header(rng: random.Random, victim: Victim) -> bytes:
    other = rng.choice(victim.others)
    part = rng.choice((slice(HEADER_BYTES), slice(12, 44), slice(44, 76)))
    changed = bytearray(victim.stored)
    changed[part] = other[part]
    return bytes(changed)


def foreign_object(rng: random.Random, victim: Victim) -> bytes:
    return rng.choice(victim.others[:-1])


def other_kind(rng: random.Random, victim: Victim) -> bytes:
    """Seal a frame of the object as what it is not, with its own key."""
    cipher = FrameCipher.of_header(victim.stored[:HEADER_BYTES], KEY, victim.object_id)
    parts = parts_of(victim.stored)
    number = rng.randrange(len(victim.data) // SMALL_BYTES + 1)
    entry_bytes = ENTRY_BYTES if cipher.is_packed else 0
    length = len(parts[number]) - entry_bytes - OVERHEAD
    right = parts[number][0] if cipher.is_packed else (1 if length == SMALL_BYTES else 2)
    kind = rng.choice([each for each in FrameKind if each != right])
    if not cipher.is_packed and kind > FrameKind.PARTIAL:
        kind = FrameKind.PARTIAL
    out = memoryview(bytearray(SLOT))
    sealed = bytes(out[: cipher.seal(kind, number, memoryview(b"?" * length), out)])
    entry = rng.choice((parts[number][:entry_bytes], entry_of(kind, length)[:entry_bytes]))
    parts[number] = entry + sealed
    return victim.stored[:HEADER_BYTES] + b"".join(parts)


WAYS: Final[tuple[Callable[[random.Random, Victim], bytes], ...]] = (
    flip,
    cut,
    cut_frames,
    extend,
    shuffle,
    repeat,
    foreign_frame,
    foreign_end,
    foreign_header,
    foreign_object,
    other_kind,
)


def read(victim: Victim, size: int | None, start: int, stop: int) -> tuple[bytes, bool]:
    """Return what comes out, and whether it ended without an error."""
    found = b""
    try:
        with closing(victim.files.open(victim.object_id, size, KEY)) as stored:
            assert size is not None or stored.length == len(victim.data), "a wrong size"
            for chunk in stored.chunks(start, stop):
                found += chunk
    except (ObjectDamaged, StoreUnavailable):
        return found, False
    return found, True


@time_limit(60)
def test_a_changed_object_gives_no_wrong_byte() -> None:
    rng = drawing(20)
    refused = right = 0
    with small_frames():
        victims = [Victim(rng, size, compresses=each) for size in SIZES for each in (False, True)]
        for number in range(TAMPERS):
            victim = victims[number % len(victims)]
            changed = rng.choice(WAYS)(rng, victim)
            victim.files.objects[victim.object_id] = changed
            end = len(victim.data)
            start, stop = sorted((rng.randint(0, end), rng.randint(0, end)))
            size = rng.choice((end, end, None))
            found, _ = read(victim, size, start, stop)
            assert victim.data[start:stop].startswith(found)
            found, is_whole = read(victim, size, 0, end)
            assert victim.data.startswith(found)
            assert is_whole == (changed == victim.stored)
            refused += not is_whole
            right += is_whole
    assert refused > TAMPERS * 0.8
    assert right, "no change was none, so that nothing shows that the object opens at all"


@pytest.mark.parametrize("compresses", [False, True])
def test_the_changes_include_each_way(monkeypatch: pytest.MonkeyPatch, *, compresses: bool) -> None:
    """Without encryption, a reader that believes any frame is found out by several of them."""
    rng = random.Random(3)
    wrong: set[str] = set()

    def write(
        _: FrameCipher, kind: FrameKind, number: int, plaintext: memoryview, out: memoryview
    ) -> int:
        out[NONCE_BYTES : NONCE_BYTES + len(plaintext)] = plaintext
        return len(plaintext) + OVERHEAD

    def believe(
        _: FrameCipher, kind: FrameKind, number: int, sealed: memoryview, out: memoryview
    ) -> memoryview:
        opened = len(sealed) - OVERHEAD
        out[:opened] = sealed[NONCE_BYTES : NONCE_BYTES + opened]
        return out[:opened]

    monkeypatch.setattr(FrameCipher, "seal", write)
    monkeypatch.setattr(FrameCipher, "open", believe)
    with small_frames():
        victim = Victim(rng, 1300, compresses=compresses)
        victim.files.objects[victim.object_id] = victim.stored
        assert read(victim, 1300, 0, 1300) == (victim.data, True)
        for way in WAYS:
            for _ in range(30):
                victim.files.objects[victim.object_id] = way(rng, victim)
                found, _ = read(victim, 1300, 0, 1300)
                if not victim.data.startswith(found):
                    wrong.add(way.__name__)
    assert wrong >= {"flip", "shuffle", "repeat", "foreign_frame", "other_kind"}

"""The stored bytes of inline objects, plain and sealed, and how they are read."""

from __future__ import annotations

import os
from typing import Final
from uuid import uuid4

import pytest
from blake3 import blake3

from registry.blobstore.base import DataKey, ObjectDamaged, ObjectUnknown, Stored
from registry.blobstore.inline import open_inline, store_inline
from registry.blobstore.sealed.frame_format import sealed_size
from registry.errors import DigestMismatch
from registry.oci.digest import Digest, digest_of
from registry.settings.groups import MOST_INLINE_BYTES

KEY: Final = DataKey(os.urandom(32), b"account")
DATA: Final = bytes(range(251)) * 3
KEYS: Final = pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])


def store(data: bytes, key: DataKey | None, algorithm: str = "sha256") -> Stored:
    return store_inline(data, digest_of(data, algorithm), str(uuid4()), key)


@KEYS
@pytest.mark.parametrize("size", [0, 1, 4096, MOST_INLINE_BYTES])
async def test_what_was_stored_is_read(size: int, key: DataKey | None) -> None:
    data = os.urandom(size)
    stored = store(data, key)
    opened = open_inline(stored.body, stored.object_id, size, key)
    assert opened.length == size
    assert opened.in_memory() == data
    assert b"".join(opened.chunks()) == data
    assert b"".join([part async for part in opened.stream()]) == data
    await opened.aclose()


@KEYS
@pytest.mark.parametrize("span", [(0, 0), (0, 1), (5, 700), (752, None), (753, 753)])
async def test_a_range(span: tuple[int, int | None], key: DataKey | None) -> None:
    stored = store(DATA, key)
    opened = open_inline(stored.body, stored.object_id, len(DATA), key)
    wanted = DATA[slice(*span)]
    assert opened.in_memory(*span) == wanted
    assert b"".join(opened.chunks(*span)) == wanted
    assert b"".join([part async for part in opened.stream(*span)]) == wanted


@pytest.mark.parametrize("span", [(0, 754), (-1, 3), (5, 4)])
def test_a_range_outside(span: tuple[int, int]) -> None:
    opened = open_inline(DATA, str(uuid4()), len(DATA))
    with pytest.raises(ValueError, match="the range"):
        opened.in_memory(*span)
    with pytest.raises(ValueError, match="the range"):
        opened.file_region(*span)
    with pytest.raises(ValueError, match="the range"):
        next(opened.chunks(*span))


def test_plain_bytes_are_what_was_pushed() -> None:
    stored = store(DATA, None)
    assert (stored.body, stored.encoding, stored.checksum) == (DATA, "plain", None)
    assert (stored.size, stored.stored_size) == (len(DATA), len(DATA))


def test_sealed_bytes_are_those_of_the_format() -> None:
    stored = store(DATA, KEY)
    assert stored.body is not None
    assert stored.encoding == "sealed"
    assert stored.stored_size == len(stored.body) == sealed_size(len(DATA))
    assert stored.checksum == blake3(stored.body).hexdigest()
    assert DATA[:32] not in stored.body


@KEYS
def test_the_digest_is_verified(key: DataKey | None) -> None:
    for algorithm in ("sha256", "sha512", "blake3"):
        with pytest.raises(DigestMismatch):
            store_inline(DATA, digest_of(b"other", algorithm), str(uuid4()), key)


@KEYS
def test_another_algorithm_is_an_alias(key: DataKey | None) -> None:
    stored = store(DATA, key, "sha512")
    assert stored.digest == digest_of(DATA)
    assert stored.alias == digest_of(DATA, "sha512")
    assert isinstance(stored.digest, Digest)


def test_no_log_shows_the_bytes() -> None:
    assert "secret" not in repr(store(b"a secret", None))


def test_every_changed_byte_is_refused() -> None:
    stored = store(DATA[:40], KEY)
    assert stored.body is not None
    for at in range(stored.stored_size):
        changed = bytearray(stored.body)
        changed[at] ^= 1
        with pytest.raises(ObjectDamaged):
            open_inline(bytes(changed), stored.object_id, 40, KEY)


def test_other_bytes_are_refused() -> None:
    stored = store(DATA, KEY)
    assert stored.body is not None
    for body in (stored.body[:-1], stored.body + b"?", stored.body[:60], b""):
        with pytest.raises(ObjectDamaged):
            open_inline(body, stored.object_id, len(DATA), KEY)
    with pytest.raises(ObjectDamaged):
        open_inline(stored.body, str(uuid4()), len(DATA), KEY)
    with pytest.raises(ObjectDamaged):
        open_inline(stored.body, stored.object_id, len(DATA), DataKey(os.urandom(32), b"account"))
    with pytest.raises(ObjectDamaged):
        open_inline(stored.body, stored.object_id, len(DATA) - 1, KEY)


def test_lost_and_cut_bytes() -> None:
    with pytest.raises(ObjectUnknown):
        open_inline(None, str(uuid4()), 3)
    with pytest.raises(ObjectDamaged):
        open_inline(b"abc", str(uuid4()), 4)

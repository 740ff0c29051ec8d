"""Random changes to what a bucket has of sealed blobs: not one wrong byte comes out, or goes in."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest

from registry.blobstore.base import DataKey, ObjectDamaged, ObjectUnknown
from registry.blobstore.s3.bucket import Bucket
from registry.blobstore.s3.bucket_layout import STAGED, object_key
from registry.blobstore.s3.files import S3Files
from registry.errors import DigestMismatch, StoreUnavailable
from registry.oci.digest import digest_of
from tests.s3_servers import credentials, settings_for
from tests.small_frames import KEY, PACKED_KEY, SMALL_BYTES, compressible, small_frames
from tests.soak import drawing, times

CHANGES = times(40)
SIZES = (1, SMALL_BYTES, 5 * SMALL_BYTES, 900, 1300)


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with small_frames(), credentials(), closing(Bucket(settings_for("moto"))) as found:
        yield found


def opened(bucket: Bucket, key: DataKey) -> S3Files:
    """Return the store as a new process has it, with parts of some hundred bytes."""
    return S3Files(bucket, compresses=key is PACKED_KEY, sizes=lambda number: 300 + number)


def changed(rng: random.Random, stored: bytes, other: bytes) -> bytes:
    """Return other bytes: flipped, cut off, longer, or with a part of an object of another."""
    way, at = rng.randrange(4), rng.randrange(len(stored))
    if way == 0:
        return stored[:at] + bytes([stored[at] ^ 1 << rng.randrange(8)]) + stored[at + 1 :]
    if way == 1:
        return stored[:at]
    if way == 2:
        return stored + rng.randbytes(rng.randint(1, 40))
    end = min(len(other), at + rng.randint(1, 400))
    found = stored[:at] + other[at:end] + stored[end:]
    return found if found != stored else stored[:at]


def put(files: S3Files, data: bytes, key: DataKey) -> str:
    object_id = str(uuid.uuid4())
    with closing(files.stage(object_id, None, key, is_fresh=True)) as staged:
        staged.write(memoryview(data))
        staged.commit(digest_of(data))
    return object_id


@pytest.mark.parametrize("key", [KEY, PACKED_KEY], ids=["sealed", "packed"])
def test_a_changed_object_gives_no_wrong_byte(bucket: Bucket, key: DataKey) -> None:
    rng, refused = drawing(8), 0
    files = opened(bucket, key)
    made = {}
    for size in SIZES:
        data = compressible(rng, size)
        other = bucket.read(object_key(put(files, compressible(rng, size), key)))
        made[put(files, data, key)] = data, other
    stored = {each: bucket.read(object_key(each)) for each in made}
    for number in range(CHANGES):
        object_id, (data, other) = list(made.items())[number % len(made)]
        bucket.put(object_key(object_id), changed(rng, stored[object_id], other))
        found = b""
        try:
            with closing(files.open(object_id, rng.choice((None, len(data))), key)) as opening:
                for chunk in opening.chunks():
                    found += chunk
        except (ObjectDamaged, StoreUnavailable):
            refused += 1
        assert data.startswith(found)
    assert refused == CHANGES
    files.close()


@pytest.mark.parametrize("key", [KEY, PACKED_KEY], ids=["sealed", "packed"])
def test_an_upload_whose_tail_was_changed_never_becomes_another_blob(
    bucket: Bucket, key: DataKey
) -> None:
    rng, refused = drawing(9), 0
    other = b""
    for number in range(CHANGES // 4):
        data = compressible(rng, 1300)
        offset = rng.randint(1, 1290)
        upload_id = str(uuid.uuid4())
        files = opened(bucket, key)
        with closing(files.stage(upload_id, None, key)) as staged:
            staged.write(memoryview(data[:offset]))
            digests = staged.flush()
        (name,) = [
            each.key for each in bucket.listed(f"{STAGED}{upload_id}/") if f"-{offset}-" in each.key
        ]
        tail = bucket.read(name)
        if number:
            bucket.put(name, changed(rng, tail, other))
        other = tail
        try:
            with closing(opened(bucket, key).resume(upload_id)) as staged:
                staged.rewind(offset, digests, None, key)
                staged.write(memoryview(data[offset:]))
                made = staged.commit(digest_of(data))
            assert made.size == len(data)
        except (ObjectUnknown, StoreUnavailable, DigestMismatch):
            refused += 1
        else:
            with closing(files.open(upload_id, len(data), key)) as opening:
                assert b"".join(bytes(chunk) for chunk in opening.chunks()) == data
        files.close()
    assert CHANGES // 8 < refused < CHANGES // 4

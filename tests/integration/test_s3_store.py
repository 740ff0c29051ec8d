"""What the store in a bucket does beyond the contract: parts, other processes, and bad networks."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import aclosing, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from registry.blobstore.base import DataKey, StageBusy
from registry.blobstore.s3 import parts
from registry.blobstore.s3.bucket import Bucket
from registry.blobstore.s3.bucket_layout import object_key
from registry.blobstore.s3.files import S3Files
from registry.blobstore.s3.parts import MOST_PARTS, part_bytes
from registry.blobstore.s3.store import S3Store
from registry.blobstore.sealed.frame_format import FRAME_BYTES, sealed_size
from registry.errors import BlobTooLarge, DigestMismatch, StoreUnavailable
from registry.oci.digest import digest_of
from registry.settings.store import MOST_S3_BLOB_BYTES, StoreSettings
from tests.contract.blob_stores import listed, new_id, write
from tests.relay import Relay
from tests.s3_servers import client_of, credentials, settings_for, url_of
from tests.small_frames import KEY

MIB = 1 << 20
DATA = random.Random(3).randbytes(21 * MIB + 5)
"""Two parts of 8 MiB, and a rest."""


@pytest.fixture
def settings() -> Iterator[StoreSettings]:
    with credentials():
        yield settings_for("seaweedfs")


@contextmanager
def opened(settings: StoreSettings) -> Iterator[S3Store]:
    """Open the store as another process does."""
    with closing(S3Store(S3Files(Bucket(settings)))) as store:
        yield store


async def read(store: S3Store, object_id: str, key: DataKey | None) -> bytes:
    async with aclosing(await store.open(object_id, len(DATA), key)) as found:
        return b"".join(bytes(chunk) for chunk in found.chunks())


def test_ten_thousand_parts_take_the_largest_blob() -> None:
    sizes = [part_bytes(number) for number in range(MOST_PARTS)]
    table = sealed_size(MOST_S3_BLOB_BYTES) // FRAME_BYTES * 8
    assert sum(sizes) > sealed_size(MOST_S3_BLOB_BYTES) + table + MIB
    assert (min(sizes), max(sizes)) == (8 * MIB, 32 * MIB)
    assert sizes == sorted(sizes)


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])
async def test_another_process_goes_on_behind_the_parts_of_the_first(
    settings: StoreSettings, key: DataKey | None
) -> None:
    upload_id, half = new_id(), 17 * MIB
    with opened(settings) as first:
        async with aclosing(await first.stage(upload_id, key)) as staged:
            write(staged, DATA[:half])
            digests = staged.flush()
    with opened(settings) as second:
        assert await second.resumable(upload_id, half, is_sealed=key is not None) == half
        async with aclosing(await second.resume(upload_id)) as staged:
            await staged.rewind(half, digests, data_key=key)
            write(staged, DATA[half:])
            assert staged.flush() == {}  # nobody has hashed all of it
            made = staged.commit(digest_of(DATA))
        assert made.stored_size == (await listed(second.list_objects()))[0].stored_size
        assert await read(second, upload_id, key) == DATA
        assert await listed(second.list_staged()) == []


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])
async def test_what_a_dead_process_has_sent_is_copied_and_it_can_send_no_more(
    settings: StoreSettings, key: DataKey | None
) -> None:
    source_id, copy_id, half = new_id(), new_id(), 17 * MIB
    with opened(settings) as first, opened(settings) as second:
        async with aclosing(await first.stage(source_id, key)) as zombie:
            write(zombie, DATA[:half])
            zombie.flush()
            copy = await second.stage_copy(copy_id, source_id, half, data_key=key, source_key=key)
            async with aclosing(copy):
                write(copy, DATA[half:])
                copy.commit(digest_of(DATA))
                with pytest.raises(StoreUnavailable):  # noqa: PT012 - with any of them
                    write(zombie, DATA)
                    zombie.flush()
        assert await read(second, copy_id, key) == DATA
        await second.discard(source_id)
        assert await listed(second.list_staged()) == []
        assert [each.object_id for each in await listed(second.list_objects())] == [copy_id]


async def test_wrong_bytes_that_were_sent_in_parts_are_no_object_in_the_end(
    settings: StoreSettings,
) -> None:
    upload_id, half = new_id(), 9 * MIB
    with opened(settings) as first, opened(settings) as second:
        async with aclosing(await first.stage(upload_id, None)) as staged:
            with pytest.raises(StageBusy):
                await second.stage(upload_id, None)
            write(staged, DATA[:half])
            digests = staged.flush()
        async with aclosing(await second.resume(upload_id)) as staged:
            await staged.rewind(half, digests, data_key=None)
            write(staged, b"and others")
            with pytest.raises(DigestMismatch):
                staged.commit(digest_of(DATA))
            await staged.discard()
        assert await listed(second.list_staged()) == await listed(second.list_objects()) == []


async def test_a_read_goes_on_where_its_connection_broke(settings: StoreSettings) -> None:
    with opened(settings) as store:
        async with aclosing(await store.stage(new_id(), KEY)) as staged:
            write(staged, DATA)
            object_id = staged.commit(digest_of(DATA)).object_id
    with relayed(settings) as (relay, store):
        async with aclosing(await store.open(object_id, len(DATA), KEY)) as found:
            read_bytes = b""
            for number, chunk in enumerate(found.chunks()):
                read_bytes += chunk
                if number in (3, 9):
                    relay.cut()
            assert read_bytes == DATA


async def test_a_server_that_says_nothing_is_a_refusal_and_soon_at_once(
    settings: StoreSettings,
) -> None:
    with relayed(settings) as (relay, store):
        relay.hold()
        for _ in range(5):
            with pytest.raises(StoreUnavailable, match="ReadTimeoutError"):
                await store.check(new_id(), 1)
        with pytest.raises(StoreUnavailable, match="asked again soon"):
            await store.check(new_id(), 1)
        relay.release()


@contextmanager
def relayed(settings: StoreSettings) -> Iterator[tuple[Relay, S3Store]]:
    """Open the store through a relay, whose silence is told after a second."""
    port = urlsplit(settings.store_s3_endpoint).port
    assert port is not None
    with Relay(port) as relay:
        endpoint = f"http://127.0.0.1:{relay.port}"
        through = replace(settings, store_s3_endpoint=endpoint, store_s3_read_seconds=1)
        with opened(through) as store:
            yield relay, store


async def test_an_upload_in_parts_without_a_tail_is_found_and_ended(
    settings: StoreSettings,
) -> None:
    """As one leaves it that died in the middle of a push of one request."""
    upload_id = new_id()
    with opened(settings) as store:
        bucket = store.files.bucket
        bucket.begin(object_key(upload_id), "its token")
        assert [each.object_id for each in await listed(store.list_staged())] == [upload_id]
        async with aclosing(await store.resume(upload_id)):
            assert await store.set_aside(upload_id, 7)
        assert await listed(store.list_staged()) == []
        (orphan,) = await listed(store.list_orphans())
        await store.delete_orphan(orphan)
        assert await listed(store.list_orphans()) == []
        assert await listed(store.list_staged()) == []


def test_parts_in_memory_are_bounded_and_given_back(settings: StoreSettings) -> None:
    with opened(settings) as store:
        budget = store.files.budget
        with closing(store.files.stage(new_id())) as staged:
            for start in range(0, len(DATA), MIB):
                staged.write(memoryview(DATA)[start : start + MIB])
            staged.flush()
            assert 0 < budget.used <= budget.most <= 24 * MIB + MIB
            staged.discard()
        assert budget.used == 0


def test_an_upload_of_more_parts_than_s3_takes_is_too_large(
    settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "MOST_PARTS", 2)
    files = S3Files(Bucket(settings_for("moto")), sizes=lambda _: 100)
    with closing(files), closing(files.stage(new_id())) as staged:
        with pytest.raises(BlobTooLarge):
            staged.write(memoryview(DATA[:301]))
        staged.discard()
        assert list(files.list_staged()) == []


def test_slow_uploads_that_fill_the_memory_hold_up_nobody(
    settings: StoreSettings, tmp_path: Path
) -> None:
    part, bucket = 100_000, Bucket(settings_for("moto", store_s3_buffer_mb=1))
    slow = {new_id(): DATA[number : number + 2 * part] for number in range(12)}
    fast, half = new_id(), part - 1
    with closing(S3Files(bucket, sizes=lambda _: part, folder=tmp_path)) as files:
        held = {name: files.stage(name) for name in slow}
        for name, staged in held.items():
            staged.write(memoryview(slow[name][:half]))
        assert len(slow) * half > files.budget.limit >= files.budget.most
        with closing(files.stage(fast)) as staged:
            staged.write(memoryview(DATA[: 11 * part]))
            staged.commit(digest_of(DATA[: 11 * part]))
        for number, (name, staged) in enumerate(held.items()):
            assert staged.encoder is not None
            assert staged.encoder.read(7, 70) == slow[name][7:77]
            if number % 2:  # so that it goes on from a tail
                digests = staged.flush()
                staged.close()
                staged = files.resume(name)  # noqa: PLW2901 - it is the same upload
                staged.rewind(half, digests)
            else:
                staged.write(memoryview(slow[name][half:part]))
                staged.rewind(half)
            staged.write(memoryview(slow[name][half:]))
            staged.commit(digest_of(slow[name]))
            staged.close()
        assert files.budget.used == 0
        assert files.budget.most <= files.budget.limit
        for name, data in {**slow, fast: DATA[: 11 * part]}.items():
            with closing(files.open(name, len(data))) as opened:
                assert b"".join(bytes(each) for each in opened.chunks()) == data
    assert list(tmp_path.iterdir()) == []


def test_what_the_server_encrypts_is_asked_for(settings: StoreSettings) -> None:
    moto = settings_for("moto", store_s3_encryption="AES256")
    with closing(Bucket(moto)) as bucket:
        bucket.put("small", b"bytes")
        upload = bucket.begin("large", "token")
        bucket.complete("large", upload, [bucket.send_part("large", upload, 1, b"part")])
    client = client_of("moto")
    for name in ("small", "large"):
        head = client.head_object(Bucket=moto.store_s3_bucket, Key=f"{moto.store_s3_prefix}/{name}")
        assert head["ServerSideEncryption"] == "AES256"
    client.close()
    assert url_of("moto") == moto.store_s3_endpoint

"""What the store in a bucket keeps when single calls of S3 fail, or come out of order."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

from registry.blobstore.base import DataKey
from registry.blobstore.s3.bucket import Bucket, Part, Refused
from registry.blobstore.s3.files import S3Files
from registry.blobstore.s3.names import object_key
from registry.errors import StoreUnavailable
from registry.oci.digest import digest_of
from tests.contract.blob_stores import new_id
from tests.s3_servers import credentials, settings_for
from tests.small_frames import KEY

MIB = 1 << 20
DATA = random.Random(5).randbytes(3 * MIB + 5)
both_forms = pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])


class Failing(Bucket):
    """A bucket whose next call of a kind does `then` instead."""

    def __init__(self) -> None:
        super().__init__(settings_for("moto"))
        self._plans: dict[str, Callable[..., Any]] = {}

    def once(self, name: str, then: Callable[..., Any]) -> None:
        """Call `then` with the method that it stands for, and its arguments."""
        self._plans[name] = then

    def _next(self, name: str, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - any call
        real = getattr(super(), name)
        plan = self._plans.pop(name, None)
        return real(*given, **named) if plan is None else plan(real, *given, **named)

    def put(
        self, key: str, body: bytes | bytearray, *, is_new: bool = False, token: str = ""
    ) -> None:
        self._next("put", key, body, is_new=is_new, token=token)

    def complete(self, key: str, upload: str, parts: Sequence[Part]) -> None:
        self._next("complete", key, upload, parts)

    def delete_all(self, keys: Sequence[str]) -> None:
        self._next("delete_all", keys)


@pytest.fixture
def bucket() -> Iterator[Failing]:
    with credentials(), closing(Failing()) as made:
        yield made


def another(bucket: Bucket) -> S3Files:
    """Return the store of another process; its parts are a MiB."""
    return S3Files(bucket, sizes=lambda _: MIB)


def staged(bucket: Bucket, key: DataKey | None, data: bytes = DATA) -> tuple[str, dict[str, str]]:
    """Acknowledge bytes as a process does; return the upload's id, and its digests."""
    upload_id = new_id()
    with closing(another(bucket).stage(upload_id, data_key=key)) as begun:
        begun.write(memoryview(data))
        return upload_id, dict(begun.flush())


def committed(bucket: Bucket, upload_id: str, key: DataKey | None, size: int, more: bytes) -> bytes:
    """Go on in another process behind `size` bytes, and return all bytes of the object."""
    files = another(bucket)
    with closing(files.resume(upload_id)) as resumed:
        resumed.rewind(size, {}, data_key=key)
        resumed.write(memoryview(more))
        resumed.commit(digest_of(DATA[:size] + more))
    with closing(files.open(upload_id, size + len(more), key)) as opened:
        return b"".join(bytes(each) for each in opened.chunks())


def refuse(*_: object, **__: object) -> None:
    raise Refused("SlowDown")


@both_forms
def test_an_upload_goes_back_into_its_parts_and_goes_on(
    bucket: Failing, key: DataKey | None
) -> None:
    """As when a process dies after a flush, and before the row tells of it."""
    upload_id, _ = staged(bucket, key)
    assert committed(bucket, upload_id, key, MIB, b"more") == DATA[:MIB] + b"more"
    assert list(bucket.listed("staged/")) == []
    assert list(bucket.begun("objects/")) == []


@both_forms
def test_parts_that_cannot_be_made_readable_stay_for_the_next_request(
    bucket: Failing, key: DataKey | None
) -> None:
    upload_id, _ = staged(bucket, key)
    files = another(bucket)
    bucket.once("complete", refuse)
    with pytest.raises(StoreUnavailable):
        files.stage_copy(new_id(), upload_id, len(DATA), key, key)
    bucket.once("complete", refuse)
    with closing(files.resume(upload_id)) as resumed, pytest.raises(StoreUnavailable):
        resumed.rewind(MIB, {}, data_key=key)
    assert committed(bucket, upload_id, key, len(DATA), b"more") == DATA + b"more"


@both_forms
def test_parts_that_could_not_be_deleted_after_they_were_sent_again_lose_nothing(
    bucket: Failing, key: DataKey | None
) -> None:
    upload_id, digests = staged(bucket, key)
    files = another(bucket)
    files.stage_copy(new_id(), upload_id, len(DATA), key, key).discard()
    assert bucket.find(object_key(upload_id)) is not None  # the parts, to be read

    def refuse_the_object(real: Callable[..., Any], keys: Sequence[str]) -> None:
        if keys == [object_key(upload_id)]:
            refuse()
        real(keys)
        bucket.once("delete_all", refuse_the_object)

    bucket.once("delete_all", refuse_the_object)
    with closing(files.resume(upload_id)) as resumed, pytest.raises(StoreUnavailable):
        resumed.rewind(len(DATA), digests, data_key=key)
    assert committed(bucket, upload_id, key, len(DATA), b"more") == DATA + b"more"
    assert list(bucket.listed("staged/")) == []

"""What the store in a bucket keeps when single calls of S3 fail, or come out of order."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from typing import Any

import pytest

from registry.blobstore.base import DataKey
from registry.blobstore.s3.bucket import Begun, Bucket, Part, Ranged
from registry.blobstore.s3.bucket_layout import object_key
from registry.blobstore.s3.files import S3Files
from registry.blobstore.s3.growing import GrowingUpload
from registry.blobstore.s3.objects import S3Object
from registry.blobstore.s3.responses import KeyExists, KeyMissing, StoreRefused
from registry.errors import StoreUnavailable
from registry.oci.digest import digest_of
from registry.settings.store import StoreSettings
from tests.contract.blob_stores import new_id
from tests.relay import Relay
from tests.s3_servers import credentials, settings_for
from tests.small_frames import KEY

MIB = 1 << 20
DATA = random.Random(5).randbytes(11 * MIB + 5)
"""Two parts of 5 MiB, the smallest that S3 takes, and a rest."""
both_forms = pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])


class Failing(Bucket):
    """A bucket whose next call of a kind does `then` instead."""

    def __init__(self, settings: StoreSettings) -> None:
        super().__init__(settings)
        self._plans: dict[str, Callable[..., Any]] = {}

    def once(self, name: str, then: Callable[..., Any]) -> None:
        """Call `then` with the method that it stands for, and its arguments."""
        self._plans[name] = then

    def keep_once(self, key: str) -> None:
        """Refuse the next deletion of this key alone; a deletion of several passes."""

        def refuse_it(real: Callable[..., Any], keys: Sequence[str]) -> None:
            if keys == [key]:
                refuse()
            real(keys)
            self.once("delete_all", refuse_it)

        self.once("delete_all", refuse_it)

    def _next(self, name: str, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - any call
        real = getattr(super(), name)
        plan = self._plans.pop(name, None)
        return real(*given, **named) if plan is None else plan(real, *given, **named)

    def put(
        self,
        key: str,
        body: bytes | bytearray,
        *,
        is_new: bool = False,
        token: str = "",
        replaces: str = "",
    ) -> None:
        self._next("put", key, body, is_new=is_new, token=token, replaces=replaces)

    def get(self, key: str, start: int, stop: int, etag: str = "") -> Ranged:
        found: Ranged = self._next("get", key, start, stop, etag)
        return found

    def complete(self, key: str, upload: str, parts: Sequence[Part]) -> None:
        self._next("complete", key, upload, parts)

    def begun(self, prefix: str) -> Iterator[Begun]:
        found: Iterator[Begun] = self._next("begun", prefix)
        return found

    def delete_all(self, keys: Sequence[str]) -> None:
        self._next("delete_all", keys)


@pytest.fixture
def bucket() -> Iterator[Failing]:
    with credentials(), closing(Failing(settings_for("seaweedfs"))) as made:
        yield made


def another(bucket: Bucket) -> S3Files:
    return S3Files(bucket, sizes=lambda _: 5 * MIB)


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
    raise StoreRefused("SlowDown")


@both_forms
def test_an_upload_goes_back_into_its_parts(bucket: Failing, key: DataKey | None) -> None:
    """As when a process dies after a flush, and before the row tells of it."""
    upload_id, _ = staged(bucket, key)
    assert committed(bucket, upload_id, key, 6 * MIB, b"more") == DATA[: 6 * MIB] + b"more"
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
def test_a_process_that_remembers_parts_that_another_has_committed_fails_once(
    bucket: Failing, key: DataKey | None
) -> None:
    """As when the other dies before its transaction: a look before each commit would cost more."""
    upload_id, remembering = new_id(), another(bucket)
    with closing(remembering.stage(upload_id, data_key=key)) as begun:
        begun.write(memoryview(DATA))
        digests = dict(begun.flush())
    with closing(another(bucket).resume(upload_id)) as dying:
        dying.rewind(len(DATA), digests, data_key=key)
        bucket.once("delete_all", refuse)  # its tail stays
        dying.commit(digest_of(DATA))
    with closing(remembering.resume(upload_id)) as resumed:
        resumed.rewind(len(DATA), digests, data_key=key)
        with pytest.raises(StoreUnavailable):
            resumed.commit(digest_of(DATA))
    with closing(remembering.resume(upload_id)) as resumed:
        resumed.rewind(len(DATA), digests, data_key=key)
        resumed.commit(digest_of(DATA))
    with closing(another(bucket).open(upload_id, len(DATA), key)) as opened:
        assert b"".join(bytes(each) for each in opened.chunks()) == DATA


@both_forms
def test_parts_that_could_not_be_deleted_after_they_were_sent_again_lose_nothing(
    bucket: Failing, key: DataKey | None
) -> None:
    upload_id, digests = staged(bucket, key)
    files = another(bucket)
    files.stage_copy(new_id(), upload_id, len(DATA), key, key).discard()
    assert bucket.find(object_key(upload_id)) is not None  # the parts, to be read
    with closing(another(bucket).open_staged(upload_id, key)) as growing:
        assert isinstance(growing, GrowingUpload)  # they are not the blob

    bucket.keep_once(object_key(upload_id))
    with closing(files.resume(upload_id)) as resumed, pytest.raises(StoreUnavailable):
        resumed.rewind(len(DATA), digests, data_key=key)
    assert committed(bucket, upload_id, key, len(DATA), b"more") == DATA + b"more"
    assert list(bucket.listed("staged/")) == []


@both_forms
def test_old_parts_that_could_not_be_deleted_are_not_taken_for_the_blob(
    bucket: Failing, key: DataKey | None
) -> None:
    """As when an upload goes back to fewer bytes than its parts have, and a deletion fails."""
    upload_id, _ = staged(bucket, key)
    bucket.keep_once(object_key(upload_id))
    with closing(another(bucket).resume(upload_id)) as resumed, pytest.raises(StoreUnavailable):
        resumed.rewind(6 * MIB, {}, data_key=key)
    bucket.once("delete_all", lambda real, keys: real(keys))
    assert [each.object_id for each in another(bucket).list_staged()] == [upload_id]
    with closing(another(bucket).open_staged(upload_id, key)) as growing:
        assert isinstance(growing, GrowingUpload)
    assert committed(bucket, upload_id, key, 6 * MIB, b"more") == DATA[: 6 * MIB] + b"more"
    assert list(bucket.listed("staged/")) == []


def lose(real: Callable[..., Any], *given: Any, **named: Any) -> None:  # noqa: ANN401 - any call
    real(*given, **named)
    refuse()


def end(real: Callable[..., Any], *given: Any, **named: Any) -> None:  # noqa: ANN401 - any call
    raise KeyMissing("CompleteMultipartUpload")


@both_forms
@pytest.mark.parametrize(
    ("then", "words"),
    [
        (lose, ""),
        (refuse, "SlowDown"),
        (end, "the upload was ended by another"),
        (lambda *_: None, "has kept other bytes than were sent"),
    ],
    ids=["lost answer", "refused", "ended", "not done"],
)
def test_parts_are_an_object_if_it_is_there_whatever_the_answer_was(
    bucket: Failing, key: DataKey | None, then: Callable[..., Any], words: str
) -> None:
    upload_id, digests = staged(bucket, key)
    bucket.once("complete", then)
    with closing(another(bucket).resume(upload_id)) as resumed:
        resumed.rewind(len(DATA), digests, data_key=key)
        if words:
            with pytest.raises(StoreUnavailable, match=words):
                resumed.commit(digest_of(DATA))
        else:
            assert resumed.commit(digest_of(DATA)).size == len(DATA)
    if words:
        assert bucket.find(object_key(upload_id)) is None
        assert committed(bucket, upload_id, key, len(DATA), b"more") == DATA + b"more"
    else:
        with closing(another(bucket).open(upload_id, len(DATA), key)) as opened:
            assert b"".join(bytes(each) for each in opened.chunks()) == DATA


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_small_object_is_stored_if_it_is_there_whatever_the_answer_was(
    bucket: Failing, is_lost: bool
) -> None:
    upload_id = new_id()
    with closing(another(bucket).stage(upload_id)) as begun:
        begun.write(memoryview(b"bytes"))
        bucket.once("put", lose if is_lost else refuse)
        if is_lost:
            assert begun.commit(digest_of(b"bytes")).size == 5
        else:
            with pytest.raises(StoreUnavailable, match="SlowDown"):
                begun.commit(digest_of(b"bytes"))
    assert (bucket.find(object_key(upload_id)) is not None) is is_lost


def test_an_id_that_was_taken_with_a_lost_answer_is_ones_own(bucket: Failing) -> None:
    def lose_the_answer(real: Callable[..., Any], *given: Any, **named: Any) -> None:  # noqa: ANN401
        real(*given, **named)
        raise KeyExists("PutObject, which was sent twice")

    bucket.once("put", lose_the_answer)
    with closing(another(bucket).stage(new_id())) as begun:
        begun.write(memoryview(b"bytes"))
        assert begun.commit(digest_of(b"bytes")).size == 5


def test_a_scan_leaves_the_tail_that_was_just_stored_again(bucket: Failing) -> None:
    """A committed object without a row becomes staged bytes again while it is looked at."""
    upload_id, digests = staged(bucket, None, DATA[:MIB])
    time.sleep(1.1)  # times are of whole seconds
    with closing(another(bucket).resume(upload_id)) as resumed:
        resumed.rewind(MIB, digests)
        resumed.write(memoryview(b"more"))
        bucket.once("delete_all", refuse)  # the tail is left
        resumed.commit(None)

    def stage_again(real: Callable[..., Any], prefix: str) -> Any:  # noqa: ANN401
        """Store the tail anew between two listings of the scan; the object is there still."""
        bucket.keep_once(object_key(upload_id))
        with closing(another(bucket).resume(upload_id)) as resumed, suppress(StoreUnavailable):
            resumed.rewind(MIB, digests)
        return real(prefix)

    bucket.once("begun", stage_again)
    list(another(bucket).list_staged())
    bucket.delete_all([object_key(upload_id)])  # as the slower of two would
    assert committed(bucket, upload_id, None, MIB, b"more") == DATA[:MIB] + b"more"


def fail_five_times(bucket: Bucket) -> None:
    """Have the bucket ask no more for two seconds."""
    for _ in range(5):
        with suppress(StoreUnavailable), bucket._asking("GetObject"):
            raise OSError


def test_a_pull_outlasts_a_server_that_is_asked_no_more_for_a_while(bucket: Failing) -> None:
    bucket.put("key", DATA)
    port = int(bucket.settings.store_s3_endpoint.rpartition(":")[2])
    with Relay(port) as relay:
        url, prefix = f"http://127.0.0.1:{relay.port}", bucket.settings.store_s3_prefix
        settings = settings_for("seaweedfs", store_s3_endpoint=url, store_s3_prefix=prefix)
        with (
            closing(Bucket(settings)) as through,
            closing(S3Object.open(through, "key", "id")) as opened,
        ):
            pulled = opened.chunks()
            found = bytes(next(pulled)) + bytes(next(pulled))
            fail_five_times(through)
            found += bytes(next(pulled))  # its answer is on its way already
            relay.cut()
            fail_five_times(through)
            found += b"".join(bytes(each) for each in pulled)
    assert found == DATA


def test_an_object_is_not_opened_if_its_mark_cannot_be_taken_away(bucket: Failing) -> None:
    files, object_id = another(bucket), new_id()
    with closing(files.stage(object_id)) as begun:
        begun.write(memoryview(b"bytes"))
        begun.commit(None)
    assert files.set_aside(object_id, 7)
    bucket.once("get", lambda *_: pytest.fail("it was opened"))
    for opening in (files.open, files.open_stored):
        bucket.once("delete_all", refuse)
        with pytest.raises(StoreUnavailable):
            opening(object_id, 5)

"""Read the acknowledged bytes of an upload, whether or not it was committed.

S3 returns no bytes of parts before they are an object. So the parts that a tail names are completed
to an object at the key to which they were sent: it has no row, so no other code takes it for a
blob. From then on S3 refuses further parts from an earlier writer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Final

from registry.blobstore.base import DataKey, ObjectDamaged, ObjectUnknown
from registry.blobstore.s3.bucket import Bucket
from registry.blobstore.s3.bucket_layout import Tail, TailBroken, TailName, decoded, object_key
from registry.blobstore.s3.encodings import layout_before, open_partial
from registry.blobstore.s3.objects import S3Object
from registry.blobstore.s3.responses import KeyMissing
from registry.blobstore.s3.uploads import UploadState
from registry.blobstore.sealed.frame_format import FRAME_BYTES, FrameCipher, SealBroken
from registry.blobstore.sealed.frames import open_frame, scratch
from registry.blobstore.sealed.objects import unseal
from registry.errors import StoreUnavailable

_PART_BYTES: Final = 1 << 20


def read_tail(bucket: Bucket, name: TailName) -> Tail:
    """Return a tail; raise `ObjectUnknown` if it is absent or invalid."""
    try:
        tail = decoded(bucket.read(name.key))
    except (KeyMissing, TailBroken) as error:
        raise ObjectUnknown(name.upload_id) from error
    if tail.about.offset != name.offset or len(tail.stored) != name.stored - name.sent:
        raise ObjectUnknown(name.upload_id)
    return tail


def tail_for(found: UploadState, offset: int) -> TailName | None:
    """Return the shortest tail that has the bytes up to `offset`; None if no tail has them."""
    fitting = [each for each in found.tails if each.offset >= offset]
    return min(fitting, key=lambda each: each.offset, default=None)


def prefix_of(
    bucket: Bucket, source_id: str, found: UploadState, data_key: DataKey | None, size: int
) -> Iterator[memoryview]:
    """Yield the first `size` bytes of an upload or an object, decrypted if sealed.

    Raise `ObjectUnknown` if there are fewer bytes, or they do not decrypt; `StoreUnavailable` if
    the store failed.
    """
    if not size:
        return
    if found.is_object:
        yield from _prefix_of_object(bucket, source_id, data_key, size)
        return
    name = tail_for(found, size)
    if name is None:
        raise ObjectUnknown(source_id)
    tail = read_tail(bucket, name)
    with closing(_Stored(_readable(bucket, name, tail, found), tail.stored)) as stored:
        try:
            if data_key is None:
                yield from _plain(stored, tail, size)
            else:
                yield from _sealed(stored, tail, source_id, data_key, size)
        except SealBroken as error:
            raise ObjectUnknown(source_id) from error


def _prefix_of_object(
    bucket: Bucket, object_id: str, data_key: DataKey | None, size: int
) -> Iterator[memoryview]:
    with closing(S3Object.open(bucket, object_key(object_id), object_id)) as stored:
        try:
            opened = stored if data_key is None else unseal(stored, object_id, None, data_key)
            if opened.length < size:
                raise ObjectUnknown(object_id)
            yield from opened.chunks(0, size)
        except (ObjectDamaged, SealBroken) as error:
            raise ObjectUnknown(object_id) from error


def _readable(bucket: Bucket, name: TailName, tail: Tail, found: UploadState) -> S3Object | None:
    """Return the object with the sent parts, completed if necessary; None if none were sent."""
    if not name.sent:
        return None
    key = object_key(name.upload_id)
    about = tail.about
    if about.upload is not None and (found.head is None or found.head.token != about.token):
        # An object with another token was made from the parts of another writer; replace it.
        try:
            bucket.complete(key, about.upload, about.parts)
        except KeyMissing:
            if bucket.find(key) is None:
                raise ObjectUnknown(name.upload_id) from None
        except StoreUnavailable:
            if (there := bucket.find(key)) is None or there.token != about.token:
                raise
    opened = S3Object.open(bucket, key, name.upload_id)
    if opened.length != name.sent:
        opened.close()
        raise ObjectUnknown(name.upload_id)
    return opened


class _Stored:
    """The stored bytes of an upload: its sent parts, followed by the bytes in its tail."""

    def __init__(self, sent: S3Object | None, tail: bytes) -> None:
        self.sent = sent
        self.tail = tail
        self._border = 0 if sent is None else sent.length
        if sent is not None:
            sent.expect(0, sent.length)

    def read(self, view: memoryview, offset: int) -> None:
        """Fill `view`; raise `SealBroken` if there are too few bytes."""
        before = max(0, min(len(view), self._border - offset))
        if before:
            assert self.sent is not None
            if not self.sent.read_into(view[:before], offset):
                raise SealBroken("there are fewer bytes")
        behind = len(view) - before
        start = offset + before - self._border
        if len(self.tail) < start + behind:
            raise SealBroken("there are fewer bytes")
        view[before:] = self.tail[start : start + behind]

    def close(self) -> None:
        """Release the object."""
        if self.sent is not None:
            self.sent.close()


def _plain(stored: _Stored, tail: Tail, size: int) -> Iterator[memoryview]:
    if tail.about.header is not None:
        raise SealBroken("the bytes are sealed")
    buffer = memoryview(bytearray(min(size, _PART_BYTES)))
    for offset in range(0, size, _PART_BYTES):
        view = buffer[: size - offset]
        stored.read(view, offset)
        yield view


def _sealed(
    stored: _Stored, tail: Tail, source_id: str, data_key: DataKey, size: int
) -> Iterator[memoryview]:
    """Yield the bytes of all full frames, then the bytes of the partial frame."""
    about = tail.about
    cipher = FrameCipher.of_header(about.header or b"", data_key, source_id)
    layout = layout_before(cipher, about.entries)
    out = memoryview(bytearray(FRAME_BYTES))
    whole = about.offset // FRAME_BYTES
    for number in range(min(whole, -(-size // FRAME_BYTES))):
        try:
            record = layout.record(number, FRAME_BYTES)
        except IndexError as error:
            raise SealBroken("the entries of a tail are cut off") from error
        sealed = scratch()[: record.stored]
        stored.read(sealed, record.start)
        frame = open_frame(cipher, number, record, sealed, out)
        yield frame[: size - number * FRAME_BYTES]
    rest = size - whole * FRAME_BYTES
    if rest > 0:
        count = about.offset % FRAME_BYTES
        yield memoryview(open_partial(cipher, whole, count, tail.partial))[:rest]

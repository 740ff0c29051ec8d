"""Objects of a bucket, read by ranges; a read resumes where its connection broke."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

from registry.blobstore.base import ObjectUnknown
from registry.blobstore.reading import StoredBytes
from registry.blobstore.s3.bucket import Bucket
from registry.blobstore.s3.responses import KeyExists, KeyMissing, OutsideObject
from registry.errors import StoreUnavailable

FIRST_BYTES: Final = 256 * 1024
"""Bytes that opening an object reads: a small object needs no second call."""
_READ_BYTES: Final = 256 * 1024
_TRIES: Final = 5
"""A read fails after this many consecutive attempts that got no byte."""
_ALL_TRIES: Final = 16
_PAUSE_SECONDS: Final = 0.5
"""Unit of the growing pauses between attempts, which together outlast the pause of `Circuit`."""
_PATIENCE: Final = 2
"""A read that gets no byte is tried again for this multiple of `store_s3_read_seconds`."""

_log = logging.getLogger(__name__)


class S3Object(StoredBytes):
    """An object of a bucket, open for reading; its first bytes were fetched when it was opened."""

    def __init__(self, bucket: Bucket, key: str, length: int, etag: str, first: bytes) -> None:
        self._bucket = bucket
        self._key = key
        self.length = length
        self._etag = etag
        self._first = memoryview(first)
        self._lock = threading.Lock()
        self._stream: _Stream | None = None
        self._expected = (0, 0)

    @classmethod
    def open(cls, bucket: Bucket, key: str, object_id: str) -> S3Object:
        """Open an object; `object_id` is for errors.

        Raise `ObjectUnknown` if there is none, `StoreUnavailable` if the store failed.
        """
        try:
            found = bucket.get(key, 0, FIRST_BYTES)
        except KeyMissing as error:
            raise ObjectUnknown(object_id) from error
        except OutsideObject:  # it is empty, or was just replaced
            try:
                head = bucket.head(key)
            except KeyMissing as error:
                raise ObjectUnknown(object_id) from error
            return cls(bucket, key, head.size, head.etag, b"")
        first = memoryview(bytearray(found.length))
        with closing(_Stream(bucket, key, found.etag, 0, found.length, found.body)) as stream:
            stream.fill(first)
        return cls(bucket, key, found.size, found.etag, bytes(first))

    def _read(self, offset: int, end: int) -> Iterator[memoryview]:
        """Yield a range through one buffer of 256 KiB.

        Raise `StoreUnavailable` if reading failed, or the object was replaced meanwhile.
        """
        if offset == end:
            return
        known = min(end, len(self._first))
        behind = max(offset, known)
        with closing(self._stream_of(behind, end)) as stream:
            if offset < known:
                yield self._first[offset:known]
            buffer = memoryview(bytearray(min(end - behind, _READ_BYTES)))
            while stream.position < end:
                view = buffer[: end - stream.position]
                stream.fill(view)
                yield view

    def read_into(self, view: memoryview, offset: int, *, wait: bool = True) -> bool:
        """Fill `view` (`StoredBytes`)."""
        end = offset + len(view)
        if end > self.length:
            return False
        known = self._first[offset : min(end, len(self._first))]
        if len(known) == len(view):
            view[:] = known
            return True
        if not wait:
            return False
        with self._lock:
            view[: len(known)] = known
            self._read_behind(view[len(known) :], offset + len(known))
        return True

    def _read_behind(self, view: memoryview, offset: int) -> None:
        """Continue the request, or begin one: for the announced range, else for these bytes."""
        end = offset + len(view)
        stream = self._stream
        if stream is None or stream.position != offset or stream.end < end:
            self._drop_stream()
            first, last = self._expected
            is_expected = first <= offset <= end <= last
            stream = self._stream = self._stream_of(offset, last if is_expected else end)
        stream.fill(view)
        if stream.position == stream.end:
            self._drop_stream()

    def expect(self, offset: int, count: int) -> None:
        """Announce a range: the next read within it requests the whole range from the bucket."""
        self._expected = (offset, min(offset + count, self.length))

    def close(self) -> None:
        """Close running requests; calling it again does nothing."""
        with self._lock:
            self._drop_stream()

    def _stream_of(self, start: int, end: int) -> _Stream:
        return _Stream(self._bucket, self._key, self._etag, start, end)

    def _drop_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


class _Gone(StoreUnavailable):
    """An object was deleted or replaced while it was being read."""


class _Stream:
    """A range being received, from `position` to `end`.

    The range is requested at once, since an object that is deleted later can be read to its end,
    but not opened. The kernel reads ahead as much as fits in the connection's buffers.
    """

    def __init__(
        self,
        bucket: Bucket,
        key: str,
        etag: str,
        start: int,
        end: int,
        body: Any = None,  # noqa: ANN401 - boto3 makes the class
    ) -> None:
        self._bucket = bucket
        self._key = key
        self._etag = etag
        self.position = start
        self.end: Final = end
        self._left = _ALL_TRIES
        self._body = body
        if body is None and start < end:
            self._ask()

    def fill(self, view: memoryview) -> None:
        """Fill `view` with the next bytes; if the connection breaks, request the rest again.

        Raise `StoreUnavailable` if the connection broke too often, or the object was replaced.
        """
        broken, began = 0, time.monotonic()
        patience = _PATIENCE * self._bucket.settings.store_s3_read_seconds
        while view:
            try:
                count = self._read_some(view)
            except StoreUnavailable as error:
                broken += 1
                self._left -= 1
                is_over = time.monotonic() - began > patience
                if is_over or broken >= _TRIES or self._left <= 0 or isinstance(error, _Gone):
                    raise
                _log.warning("a read from the blob store broke and goes on: %s", error.message)
                self.close()
                time.sleep(_PAUSE_SECONDS * (2 ** (broken - 1) - 1))
            else:
                self.position += count
                view = view[count:]
                broken, began = 0, time.monotonic()

    def _read_some(self, view: memoryview) -> int:
        if self._body is None:
            self._ask()
        with self._bucket.reading():
            count = int(self._body.readinto(view))
        if not count:
            raise StoreUnavailable("a stored object is shorter than it was")
        return count

    def _ask(self) -> None:
        try:
            found = self._bucket.get(self._key, self.position, self.end, self._etag)
        except (KeyMissing, KeyExists, OutsideObject) as error:
            raise _Gone("a stored object was deleted while it was read") from error
        self._body = found.body

    def close(self) -> None:
        """Close the request; calling it again does nothing."""
        body, self._body = self._body, None
        if body is not None:
            body.close()

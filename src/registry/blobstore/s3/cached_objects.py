"""Objects of a bucket, read through the cache of this machine (`disk_cache`)."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from cloudcore.serving.asgi import FileRegion
from registry.blobstore.reading import BlockingObject, StoredBytes
from registry.errors import StoreUnavailable

_READ_BYTES: Final = 256 * 1024
_LOOK_SECONDS: Final = 0.002
_PATIENCE_SECONDS: Final = 2.0
"""If no byte arrives for this long, a reader stops waiting for the process that fetches."""
_AHEAD_BYTES: Final = 8 << 20
"""A reader does not wait for bytes that are further than this beyond the fetched bytes."""


class CachedObject(BlockingObject):
    """An object whose bytes are in the disk cache; a read that fails drops them from the cache.

    So the next read takes the bytes from the bucket, and a bad cache file does not count as damage.
    """

    def __init__(
        self,
        opened: BlockingObject,
        forget: Callable[[], None],
        served: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._opened = opened
        self.length = opened.length
        self._forget = forget
        self._served = served
        self._sent = 0
        """Bytes that the kernel sends from the file; reset if they are read by `chunks` instead."""

    @property
    def closes_slowly(self) -> bool:
        """Return True if `close` may block."""
        return self._opened.closes_slowly

    def file_region(self, start: int = 0, stop: int | None = None) -> FileRegion | None:
        """Return a range as a region of the cache file; None if the object is sealed."""
        region = self._opened.file_region(start, stop)
        if region is not None:
            self._sent += region.count
        return region

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:
        """Yield a range in order.

        Raise `StoreUnavailable` if reading failed, or the cached bytes are not those of the object;
        then they are removed from the cache.
        """
        return self._counted(self._opened.chunks(start, stop))

    def shared_chunks(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:
        """Yield a range for a client, as `chunks` does (`OpenObject.shared_chunks`)."""
        return self._counted(self._opened.shared_chunks(start, stop))

    def _counted(self, chunks: Iterator[memoryview]) -> Iterator[memoryview]:
        self._sent = count = 0
        try:
            for chunk in chunks:
                count += len(chunk)
                yield chunk
        except StoreUnavailable as error:
            self._forget()
            words = "this machine's cache had other bytes, or could not read them; try again"
            raise StoreUnavailable(words) from error
        finally:
            self._served(count)

    def close(self) -> None:
        """Release the object; calling it again does nothing."""
        sent, self._sent = self._sent, 0
        if sent:
            self._served(sent)
        self._opened.close()


class FollowingObject(StoredBytes):
    """An object that another thread is fetching into the cache, read from the growing file.

    If the bytes do not arrive, or are far ahead, the object is opened in the bucket by `reopen`.
    """

    def __init__(self, descriptor: int, length: int, reopen: Callable[[], StoredBytes]) -> None:
        self._descriptor = descriptor
        self.length = length
        self._reopen = reopen
        self._lock = threading.Lock()
        self._own: StoredBytes | None = None
        self._expected = (0, 0)
        self._waits = True
        self._is_open = True

    def _read(self, offset: int, end: int) -> Iterator[memoryview]:
        """Yield a range through one buffer of 256 KiB; raise `StoreUnavailable` on failure."""
        buffer = memoryview(bytearray(min(end - offset, _READ_BYTES)))
        self.expect(offset, end - offset)
        while offset < end:
            view = buffer[: end - offset]
            if not self.read_into(view, offset):
                raise StoreUnavailable("a stored object is shorter than it was")
            yield view
            offset += len(view)

    def read_into(self, view: memoryview, offset: int, *, wait: bool = True) -> bool:
        """Fill `view` (`StoredBytes`)."""
        end = offset + len(view)
        if end > self.length:
            return False
        if not self._is_open:  # another file may have the descriptor's number
            raise ValueError("the stored object was closed")
        if self._is_fetched(offset, end, wait=wait):
            with suppress(OSError):
                if os.preadv(self._descriptor, [view], offset) == len(view):
                    return True
        return wait and self._opened().read_into(view, offset)

    def _is_fetched(self, offset: int, end: int, *, wait: bool) -> bool:
        """Return True if the file has the bytes; with `wait`, wait for them within limits."""
        found = os.fstat(self._descriptor)
        grew_at = time.monotonic()
        while found.st_size < end:
            is_far = offset > found.st_size + _AHEAD_BYTES
            is_given_up = not found.st_nlink
            if not (wait and self._waits) or is_far or is_given_up:
                return False
            time.sleep(_LOOK_SECONDS)
            before, found = found, os.fstat(self._descriptor)
            if found.st_size != before.st_size:
                grew_at = time.monotonic()
            elif time.monotonic() - grew_at > _PATIENCE_SECONDS:
                self._waits = False
        return True

    def _opened(self) -> StoredBytes:
        with self._lock:
            if self._own is None:
                self._own = self._reopen()
                self._own.expect(*self._expected)
            return self._own

    def expect(self, offset: int, count: int) -> None:
        """Prepare to read a large range in order."""
        self._expected = (offset, count)
        if self._own is not None:
            self._own.expect(offset, count)

    def close(self) -> None:
        """Release the object; calling it again does nothing."""
        with self._lock:
            if self._is_open:
                self._is_open = False
                os.close(self._descriptor)
                if self._own is not None:
                    self._own.close()

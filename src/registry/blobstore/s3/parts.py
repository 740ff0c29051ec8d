"""The stored bytes of an upload: collected in memory up to the size of a part, then sent.

All parts but the last have the sizes that `part_bytes` returns. An upload that fits in the first
part is stored by one call.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from registry.blobstore.base import StageBusy
from registry.blobstore.s3.bucket import Bucket, Part
from registry.blobstore.s3.memory import MemoryBudget, PartBuffer
from registry.blobstore.s3.responses import KeyExists, KeyMissing
from registry.errors import BlobTooLarge, StoreUnavailable

_MIB: Final = 1 << 20
_GROWS_EVERY: Final = 1000
_SMALLEST: Final = 8 * _MIB
_LARGEST: Final = 32 * _MIB
MOST_PARTS: Final = 10_000
"""The maximum number of parts in S3."""
_IN_FLIGHT: Final = 2
_THREADS: Final = 16
_PASSING_SHARE: Final = 4
"""One byte of memory in this many is for bytes that are being sent, which wait for no client."""

PartBytes = Callable[[int], int]


def part_bytes(number: int) -> int:
    """Return the size of a part, counted from 0: 8 MiB, and 8 MiB more after each 1,000 parts.

    The size grows to at most 32 MiB. So `MOST_PARTS` parts have 265 GiB (`MOST_S3_BLOB_BYTES`).
    """
    return min(_SMALLEST * (1 + number // _GROWS_EVERY), _LARGEST)


class Senders:
    """The threads that send the parts of all uploads of a process, and their memory."""

    def __init__(
        self, memory_bytes: int, sizes: PartBytes = part_bytes, folder: Path | None = None
    ) -> None:
        """Use this much memory and these part sizes; bytes that do not fit in it go to `folder`.

        Without a folder, use the system's folder for temporary files.
        """
        passing = memory_bytes // _PASSING_SHARE
        self.budget: Final = MemoryBudget(memory_bytes - passing)
        """Memory for parts until they are sent."""
        self.passing: Final = MemoryBudget(passing)
        """Memory for copies of parts while they are sent."""
        self.sizes: Final = sizes
        self._folder = folder
        self._making = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    @property
    def pool(self) -> ThreadPoolExecutor:
        """Return the thread pool, which is created for the first part."""
        with self._making:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_THREADS, "s3-parts")
            return self._pool

    def buffer(self) -> PartBuffer:
        """Return an empty buffer for a part."""
        return PartBuffer(self.budget, self._folder)

    def close(self) -> None:
        """Wait until running sends have finished, and end the threads."""
        with self._making:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()


class PartWriter:
    """The stored bytes of one upload; one thread appends, others may read the bytes in memory.

    After a `StoreUnavailable` it can only be closed.
    """

    def __init__(self, bucket: Bucket, key: str, token: str, senders: Senders) -> None:
        """Begin with no bytes; `token` is stored with the object, to recognize its writer."""
        self._bucket = bucket
        self._key = key
        self.token = token
        self._senders = senders
        self._lock = threading.Lock()
        self._buffer = senders.buffer()
        self._flying: deque[Future[Part]] = deque()
        self.upload: str | None = None
        """The id of the multipart upload; None until the first part is sent."""
        self.parts: list[Part] = []
        self.sent = 0
        """Number of bytes in parts that were sent or are being sent."""

    @property
    def length(self) -> int:
        """Return the number of bytes. May be called from any thread."""
        with self._lock:
            return self._length

    @property
    def _length(self) -> int:
        """Return the number of bytes; the caller holds the lock."""
        return self.sent + self.unsent

    @property
    def unsent(self) -> int:
        """Return the number of bytes after the sent parts."""
        return len(self._buffer)

    def restore(self, upload: str, parts: Sequence[Part], sent: int) -> None:
        """Continue after `parts`, which an earlier writer with the same token has sent."""
        self.upload, self.parts, self.sent = upload, list(parts), sent

    def refill(self, tail: bytes) -> None:
        """Load the stored bytes of a tail into memory again."""
        self._buffer.append(memoryview(tail))

    def append(self, view: memoryview) -> None:
        """Append bytes; send a full part once more bytes follow.

        Raise `StoreUnavailable` if a part cannot be sent, or fits neither in memory nor on the
        disk; `BlobTooLarge` if there are more parts than S3 allows.
        """
        while view:
            room = self._senders.sizes(self._next) - len(self._buffer)
            if room <= 0:
                self._send()
                continue
            self._buffer.append(view[:room])
            view = view[room:]

    def peek(self, start: int, stop: int) -> bytes | None:
        """Return the bytes ``[start, stop)``; None if they are not in memory. For any thread."""
        with self._lock:
            first = start - self.sent
            if first < 0 or stop > self._length:
                return None
            return self._buffer.read(first, stop - self.sent)

    def cut(self, length: int) -> None:
        """Drop the bytes after `length`, all of which must be in memory."""
        self._buffer.cut(length - self.sent)

    def settle(self) -> None:
        """Send the part in memory if it is full, and wait until all sent parts have arrived.

        Raise `StoreUnavailable` if a part cannot be sent.
        """
        if len(self._buffer) >= self._senders.sizes(self._next):
            self._send()
        while self._flying:
            self._land()

    def tail(self) -> bytes:
        """Return the bytes after the sent parts."""
        return self._buffer.read(0, self.unsent)

    def complete(self) -> None:
        """Store the bytes as the object at the key.

        If the response is lost, look at the object at the key: if it has this writer's size and
        token, return normally.

        Raise `StageBusy` if another writer has already stored an object there; `StoreUnavailable`
        if the store failed.
        """
        if self.upload is None:
            try:
                with self._buffer.loaded(self._senders.passing) as body:
                    self._bucket.put(self._key, body, is_new=True, token=self.token)
            except (KeyExists, StoreUnavailable) as error:
                if not self._is_stored():
                    if isinstance(error, KeyExists):
                        raise StageBusy(self._key) from error
                    raise
        else:
            self._complete_parts(self.upload)
        self._forget()

    def _complete_parts(self, upload: str) -> None:
        if self._buffer:
            self._send()
        while self._flying:
            self._land()
        try:
            self._bucket.complete(self._key, upload, self.parts)
        except (KeyMissing, StoreUnavailable) as error:
            if not self._is_stored():
                if isinstance(error, KeyMissing):
                    raise StoreUnavailable("the upload was ended by another") from error
                raise
        else:
            if not self._is_stored():
                raise StoreUnavailable("the blob store has kept other bytes than were sent")

    def _is_stored(self) -> bool:
        """Return True if the object at the key was made by this writer."""
        found = self._bucket.find(self._key)
        return found is not None and (found.size, found.token) == (self.length, self.token)

    def abort(self) -> None:
        """Abort the multipart upload; if that fails, the orphan scan will abort it."""
        self.close()
        if self.upload is not None:
            with suppress(StoreUnavailable):
                self._bucket.abort(self._key, self.upload)
            self.upload = None

    def close(self) -> None:
        """Wait until running sends have finished, and free the memory."""
        while self._flying:
            with suppress(StoreUnavailable, KeyMissing):
                self._flying.popleft().result()
        self._forget()

    @property
    def _next(self) -> int:
        return len(self.parts) + len(self._flying)

    def _send(self) -> None:
        """Send the bytes in memory as the next part; if two are being sent, wait for one first."""
        while len(self._flying) >= _IN_FLIGHT:
            self._land()
        number = self._next + 1
        if number > MOST_PARTS:
            raise BlobTooLarge("the blob is larger than the blob store takes", limit=self.sent)
        if self.upload is None:
            self.upload = self._bucket.begin(self._key, self.token)
        part = self._swap()
        self._flying.append(self._senders.pool.submit(self._sent, self.upload, number, part))

    def _swap(self) -> PartBuffer:
        """Count the bytes in memory as sent; return their buffer."""
        with self._lock:
            full, self._buffer = self._buffer, self._senders.buffer()
            self.sent += len(full)
        return full

    def _sent(self, upload: str, number: int, part: PartBuffer) -> Part:
        try:
            with part.loaded(self._senders.passing) as body:
                return self._bucket.send_part(self._key, upload, number, body)
        finally:
            part.close()

    def _land(self) -> None:
        try:
            self.parts.append(self._flying[0].result())
        except KeyMissing as error:
            raise StoreUnavailable("the upload was ended by another") from error
        finally:
            self._flying.popleft()

    def _forget(self) -> None:
        self._swap().close()

"""The stored bytes of an upload on their way: in memory up to a part, then sent.

All parts but the last have the sizes of `part_bytes`. An upload that fits the first is stored by
one call.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from registry.blobstore.base import StageBusy
from registry.blobstore.s3.answers import KeyExists, KeyMissing
from registry.blobstore.s3.bucket import Bucket, Part
from registry.blobstore.s3.memory import Budget
from registry.errors import StoreUnavailable

_MIB: Final = 1 << 20
_GROWS_EVERY: Final = 1000
_SMALLEST: Final = 8 * _MIB
_LARGEST: Final = 32 * _MIB
_IN_FLIGHT: Final = 2
_THREADS: Final = 16

PartBytes = Callable[[int], int]


def part_bytes(number: int) -> int:
    """Return the size of a part, counted from 0: 8 MiB, and after each 1,000 parts 8 MiB more.

    From 32 MiB on it stays. So 10,000 parts, the most that S3 takes, have 265 GiB.
    """
    return min(_SMALLEST * (1 + number // _GROWS_EVERY), _LARGEST)


class Senders:
    """The threads in which the parts of a process are sent, and the memory that they may have."""

    def __init__(self, budget: Budget, sizes: PartBytes = part_bytes) -> None:
        self.budget: Final = budget
        self.sizes: Final = sizes
        self._making = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    @property
    def pool(self) -> ThreadPoolExecutor:
        """Return the threads, which start with the first part."""
        with self._making:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_THREADS, "s3-parts")
            return self._pool

    def close(self) -> None:
        """Wait for what is being sent, and end the threads."""
        with self._making:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()


class PartWriter:
    """The stored bytes of one upload; one thread appends, others may read what is in memory.

    After a StoreUnavailable it can only be closed.
    """

    def __init__(self, bucket: Bucket, key: str, token: str, senders: Senders) -> None:
        """Begin with no bytes; `token` tells later that this writer has stored the object."""
        self._bucket = bucket
        self._key = key
        self.token = token
        self._senders = senders
        self._lock = threading.Lock()
        self._buffer = bytearray()
        self._flying: deque[Future[Part]] = deque()
        self.upload: str | None = None
        """The name of the upload in parts; None until there is one."""
        self.parts: list[Part] = []
        self.sent = 0
        """How many bytes are in parts, or on their way there."""

    @property
    def length(self) -> int:
        """Return the number of bytes."""
        return self.sent + len(self._buffer)

    def restore(self, upload: str, parts: Sequence[Part], sent: int) -> None:
        """Go on behind parts that a writer with the same token has sent."""
        self.upload, self.parts, self.sent = upload, list(parts), sent

    def refill(self, tail: bytes) -> None:
        """Have the bytes of a tail in memory again."""
        self._senders.budget.take(len(tail))
        with self._lock:
            self._buffer += tail

    def append(self, view: memoryview) -> None:
        """Append bytes; send each part that they fill, once more bytes follow.

        Raises:
            StoreUnavailable: a part cannot be sent, or there is no memory.

        """
        while view:
            room = self._senders.sizes(self._next) - len(self._buffer)
            if room <= 0:
                self._send()
                continue
            taken = view[:room]
            self._senders.budget.take(len(taken))
            with self._lock:
                self._buffer += taken
            view = view[room:]

    def peek(self, start: int, stop: int) -> bytes | None:
        """Return bytes that are in memory, or None if they are not. For any thread."""
        with self._lock:
            first = start - self.sent
            if first < 0 or stop > self.length:
                return None
            return bytes(self._buffer[first : stop - self.sent])

    def cut(self, length: int) -> None:
        """Forget the bytes behind `length`, which are in memory."""
        with self._lock:
            dropped = self.length - length
            del self._buffer[length - self.sent :]
        self._senders.budget.give(dropped)

    def settle(self) -> bytes:
        """Send a part that is full, wait until all are there, and return what is behind them.

        Raises:
            StoreUnavailable: a part cannot be sent.

        """
        if len(self._buffer) >= self._senders.sizes(self._next):
            self._send()
        while self._flying:
            self._land()
        return bytes(self._buffer)

    def complete(self) -> None:
        """Make the bytes the object of the key.

        If the answer is lost, the object tells whether it is this one.

        Raises:
            StageBusy: there is an object already, which another has stored.
            StoreUnavailable: the store failed.

        """
        if self.upload is None:
            try:
                self._bucket.put(self._key, self._buffer, is_new=True, token=self.token)
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
        """Return True if the object of the key is the one that this writer has made."""
        found = self._bucket.find(self._key)
        return found is not None and (found.size, found.token) == (self.length, self.token)

    def abort(self) -> None:
        """End the upload in parts; if the store fails, the scan for orphans does."""
        self.close()
        if self.upload is not None:
            with suppress(StoreUnavailable):
                self._bucket.abort(self._key, self.upload)
            self.upload = None

    def close(self) -> None:
        """Wait for what is being sent, and free the memory."""
        while self._flying:
            with suppress(StoreUnavailable, KeyMissing):
                self._flying.popleft().result()
        self._forget()

    @property
    def _next(self) -> int:
        return len(self.parts) + len(self._flying)

    def _send(self) -> None:
        """Send what is in memory as the next part; wait if two are on their way."""
        while len(self._flying) >= _IN_FLIGHT:
            self._land()
        if self.upload is None:
            self.upload = self._bucket.begin(self._key, self.token)
        number, body = self._next + 1, self._buffer
        with self._lock:
            self._buffer = bytearray()
            self.sent += len(body)
        self._flying.append(self._senders.pool.submit(self._sent, self.upload, number, body))

    def _sent(self, upload: str, number: int, body: bytearray) -> Part:
        try:
            return self._bucket.send_part(self._key, upload, number, body)
        finally:
            self._senders.budget.give(len(body))

    def _land(self) -> None:
        try:
            self.parts.append(self._flying[0].result())
        except KeyMissing as error:
            raise StoreUnavailable("the upload was ended by another") from error
        finally:
            self._flying.popleft()

    def _forget(self) -> None:
        with self._lock:
            dropped = len(self._buffer)
            self.sent += dropped
            self._buffer = bytearray()
        self._senders.budget.give(dropped)

"""The memory that all uploads of a process share for bytes not yet sent.

An upload that waits for its client never waits for memory: many slow clients would block each other
and all other clients. Bytes that do not fit go to a file (`PartBuffer`). Only sends wait for
memory, and only for other sends, which finish without any client.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

from registry.blobstore.disk.disk_io import check_room
from registry.errors import StoreUnavailable

_PATIENCE_SECONDS: Final = 30.0
_SPARE_BYTES: Final = 1 << 30
"""Bytes that the files of uploads leave free on the disk, where the database may be."""
_SPARE_SHARE: Final = 10


class MemoryBudget:
    """A limit on memory use in bytes; a use may exceed the limit while there is no other use.

    Waiting uses are served in order, so that many small uses do not starve a large one.
    """

    def __init__(self, limit: int, patience_seconds: float = _PATIENCE_SECONDS) -> None:
        self.limit: Final = limit
        self._patience = patience_seconds
        self._changed = threading.Condition()
        self._used = 0
        self._turns: deque[object] = deque()
        self.most = 0
        """The maximum number of bytes used at once so far."""

    @property
    def used(self) -> int:
        """Return the number of bytes in use."""
        return self._used

    @property
    def waiting(self) -> int:
        """Return the number of waiting uses."""
        return len(self._turns)

    def take_now(self, count: int) -> bool:
        """Reserve `count` bytes without waiting; return False if they are not free."""
        with self._changed:
            if not self._fits(count):
                return False
            self._use(count)
            return True

    def give(self, count: int) -> None:
        """Free `count` bytes."""
        with self._changed:
            self._used -= count
            self._changed.notify_all()

    @contextmanager
    def taken(self, count: int) -> Iterator[None]:
        """Wait for `count` free bytes; reserve them in the block, which must wait for no client.

        Raise `StoreUnavailable` if they are not free within `patience_seconds`.
        """
        self._wait(count)
        try:
            yield
        finally:
            self.give(count)

    def _wait(self, count: int) -> None:
        turn = object()
        with self._changed:
            self._turns.append(turn)
            try:
                if not self._changed.wait_for(
                    lambda: self._turns[0] is turn and self._fits(count), self._patience
                ):
                    raise StoreUnavailable("too much is sent to the blob store at once; try again")
                self._use(count)
            finally:
                self._turns.remove(turn)
                self._changed.notify_all()

    def _fits(self, count: int) -> bool:
        return not self._used or self._used + count <= self.limit

    def _use(self, count: int) -> None:
        self._used += count
        self.most = max(self.most, self._used)


class PartBuffer:
    """The bytes of a part until they are sent: in memory, or in a file if memory is used up.

    The file has no name, so a process that dies leaves nothing behind. One thread appends; others
    may read meanwhile.
    """

    def __init__(self, budget: MemoryBudget, folder: Path | None) -> None:
        self._budget = budget
        self._folder = folder
        self._lock = threading.Lock()
        self._memory = bytearray()
        self._file: IO[bytes] | None = None
        self._length = 0

    def __len__(self) -> int:
        """Return the number of bytes."""
        return self._length

    def append(self, view: memoryview) -> None:
        """Append bytes; raise `StoreUnavailable` if there is no room on the disk either."""
        if self._file is None and not self._budget.take_now(len(view)):
            self._move()
        with self._lock:
            if self._file is None:
                self._memory += view
            else:
                _write(self._file.fileno(), view, self._length)
            self._length += len(view)

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes ``[start, stop)``, which must exist. Any thread may call it."""
        with self._lock:
            if self._file is None:
                return bytes(self._memory[start:stop])
            return _read(self._file.fileno(), start, stop)

    def cut(self, length: int) -> None:
        """Drop the bytes after `length`."""
        with self._lock:
            dropped, self._length = self._length - length, length
            if self._file is None:
                del self._memory[length:]
                self._budget.give(dropped)

    @contextmanager
    def loaded(self, passing: MemoryBudget) -> Iterator[bytes | bytearray]:
        """Yield all bytes, valid within the ``with`` block.

        Bytes in a file are read into memory that is reserved from the budget `passing`.
        """
        if self._file is None:
            yield self._memory
            return
        with passing.taken(self._length):
            yield self.read(0, self._length)

    def close(self) -> None:
        """Free the memory, or the file."""
        with self._lock:
            file, self._file = self._file, None
            if file is None:
                self._budget.give(self._length)
            else:
                file.close()
            self._memory, self._length = bytearray(), 0

    def _move(self) -> None:
        """Move the bytes to a file, and continue there."""
        try:
            file = TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 - `close` does it
        except OSError as error:
            raise _no_room(error) from error
        try:
            _write(file.fileno(), memoryview(self._memory), 0)
        except BaseException:
            file.close()
            raise
        with self._lock:
            self._file, self._memory = file, bytearray()
        self._budget.give(self._length)


def _no_room(error: OSError) -> StoreUnavailable:
    why = errno.errorcode.get(error.errno or 0, "unknown error")
    return StoreUnavailable(f"uploads use up their memory, and the disk fails ({why})")


def _write(descriptor: int, view: memoryview, offset: int) -> None:
    try:
        check_room(descriptor, len(view), _SPARE_BYTES, _SPARE_SHARE)
        while view:
            count = os.pwrite(descriptor, view, offset)
            view, offset = view[count:], offset + count
    except OSError as error:
        raise _no_room(error) from error


def _read(descriptor: int, start: int, stop: int) -> bytes:
    """Return the bytes ``[start, stop)`` of a file; a single `pread` may return fewer."""
    parts = []
    while start < stop:
        try:
            part = os.pread(descriptor, stop - start, start)
        except OSError as error:
            raise _no_room(error) from error
        if not part:
            raise StoreUnavailable("bytes that wait to be sent are lost")
        parts.append(part)
        start += len(part)
    return b"".join(parts)

"""What a store opens for reading, whose calls block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol, runtime_checkable

from registry.blobstore.base import FileRegion


class BlockingObject(Protocol):
    """An object open for reading (`OpenObject`)."""

    @property
    def length(self) -> int:
        """Return the number of bytes."""
        ...

    @property
    def closes_slowly(self) -> bool:
        """Return True if `close` may block: it frees the bytes of a deleted object."""
        ...

    def file_region(self, start: int = 0, stop: int | None = None) -> FileRegion | None:
        """See `OpenObject.file_region`."""
        ...

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:
        """See `OpenObject.chunks`."""
        ...

    def shared_chunks(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:
        """See `OpenObject.shared_chunks`."""
        return self.chunks(start, stop)

    def close(self) -> None:
        """See `OpenObject.aclose`."""
        ...


class Growth(NamedTuple):
    """The size of staged bytes, and whether it is final."""

    size: int
    is_committed: bool


@runtime_checkable
class BlockingGrowing(Protocol):
    """Staged bytes open for reading while they grow."""

    def look(self) -> Growth:
        """Return the number of bytes, and whether they are committed.

        Raises:
            StagedDropped: they are neither staged nor an object.

        """
        ...

    def read(self, offset: int, count: int) -> bytes:
        """Return `count` bytes from `offset`; they must have been seen by `look`.

        Raises:
            StagedDropped: they were cut off.

        """
        ...

    def close(self) -> None:
        """Release them; calling it again does nothing."""
        ...

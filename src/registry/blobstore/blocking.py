"""The interfaces that a store implements: those of `registry.blobstore.base`, but blocking.

`registry.blobstore.threaded` makes a `BlobStore` of them; its docstrings apply here too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol, runtime_checkable

from registry.blobstore.base import DataKey, FileRegion, Orphan, Stored, StoredObject
from registry.oci.digest import Digest


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


class BlockingStaged(Protocol):
    """The staged bytes of one upload (`Staged`)."""

    @property
    def offset(self) -> int:
        """See `Staged.offset`."""
        ...

    @property
    def closes_slowly(self) -> bool:
        """Return True if `close` may block: it frees the bytes of a deleted object."""
        ...

    def rewinds_at_once(self, offset: int, *, is_sealed: bool = False) -> bool:
        """Return True if a `rewind` to `offset` reads and changes no file, and so cannot block."""
        ...

    def rewind(
        self,
        offset: int,
        digests: Mapping[str, str] | None = None,
        algorithm: str | None = None,
        data_key: DataKey | None = None,
    ) -> None:
        """See `Staged.rewind`."""
        ...

    def write(self, view: memoryview, /) -> None:
        """See `Staged.write`."""
        ...

    def flush(self) -> Mapping[str, str]:
        """See `Staged.flush`."""
        ...

    def commit(self, expected: Digest | None) -> Stored:
        """See `Staged.commit`."""
        ...

    def discard(self) -> None:
        """See `Staged.discard`."""
        ...

    def close(self) -> None:
        """See `Staged.aclose`."""
        ...


class BlockingStore(Protocol):
    """A store whose calls block. They may come from any thread."""

    def close(self) -> None:
        """Release the store; what it opened can still be read."""
        ...

    def open(
        self, object_id: str, size: int | None = None, data_key: DataKey | None = None
    ) -> BlockingObject:
        """See `BlobReader.open`."""
        ...

    def open_staged(
        self, upload_id: str, data_key: DataKey | None = None
    ) -> BlockingObject | BlockingGrowing:
        """See `BlobReader.open_staged`."""
        ...

    def open_stored(self, object_id: str, stored_size: int) -> BlockingObject:
        """See `BlobReader.open_stored`."""
        ...

    def check(self, object_id: str, stored_size: int) -> None:
        """See `BlobReader.check`."""
        ...

    def stage(
        self, upload_id: str, algorithm: str | None = None, data_key: DataKey | None = None
    ) -> BlockingStaged:
        """See `BlobWriter.stage`."""
        ...

    def resume(self, upload_id: str) -> BlockingStaged:
        """See `BlobWriter.resume`."""
        ...

    def stage_copy(
        self,
        upload_id: str,
        source_id: str,
        size: int,
        data_key: DataKey | None = None,
        source_key: DataKey | None = None,
    ) -> BlockingStaged:
        """See `BlobWriter.stage_copy`."""
        ...

    def resumable(self, upload_id: str, received: int, *, is_sealed: bool = False) -> int:
        """See `BlobWriter.resumable`."""
        ...

    def discard(self, upload_id: str) -> None:
        """See `BlobWriter.discard`."""
        ...

    def check_room(self) -> None:
        """See `BlobWriter.check_room`."""
        ...

    def partitions(self) -> Sequence[str]:
        """See `BlobSweeper.partitions`."""
        ...

    def list_objects(self, partition: str | None = None) -> Iterator[StoredObject]:
        """See `BlobSweeper.list_objects`."""
        ...

    def list_ids(self, partition: str) -> Iterator[str]:
        """See `BlobSweeper.list_ids`."""
        ...

    def list_staged(self) -> Iterator[StoredObject]:
        """See `BlobSweeper.list_staged`."""
        ...

    def set_aside(self, object_id: str, moment: int, *, staged_too: bool = True) -> bool:
        """See `BlobSweeper.set_aside`."""
        ...

    def list_orphans(self) -> Iterator[Orphan]:
        """See `BlobSweeper.list_orphans`."""
        ...

    def take_back(self, object_id: str) -> bool:
        """See `BlobSweeper.take_back`."""
        ...

    def delete_orphan(self, orphan: Orphan) -> None:
        """See `BlobSweeper.delete_orphan`."""
        ...

    def scan_alone(self) -> AbstractContextManager[bool]:
        """See `BlobSweeper.scan_alone`."""
        ...

    def generation(self) -> str | None:
        """See `BlobSweeper.generation`."""
        ...

    def note_generation(self, generation: str) -> None:
        """See `BlobSweeper.note_generation`."""
        ...

    def deleting(self) -> AbstractContextManager[None]:
        """Return a context manager in which objects that have had a row may be deleted.

        Raises:
            DeletionsHeld: a backup is under way.

        """
        ...

    def delete(self, object_id: str) -> None:
        """Delete an object's bytes; do nothing if it is absent."""
        ...

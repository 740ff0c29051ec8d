"""The interfaces of blocking stores, whose calls `ThreadedStore` makes in threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from registry.blobstore.base import DataKey, Stored
from registry.blobstore.reading import BlockingGrowing, BlockingObject
from registry.blobstore.sweeper import Orphan, StoredObject
from registry.oci.digest import Digest


class BlockingStaged(Protocol):
    """The staged bytes of one upload (`Staged`)."""

    @property
    def offset(self) -> int:
        """See `Staged.offset`."""
        ...

    @property
    def closes_slowly(self) -> bool:
        """Return True if `close` may wait."""
        ...

    def rewinds_at_once(self, offset: int, *, is_sealed: bool = False) -> bool:
        """Return True if `rewind` will not wait."""
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


class BlockingFiles(Protocol):
    """The objects and staged bytes of a store; see the calls of the same name of `BlobStore`."""

    def close(self) -> None:
        """Release the store; what was opened can still be read."""
        ...

    def open(
        self, object_id: str, size: int | None = None, data_key: DataKey | None = None
    ) -> BlockingObject:
        """See `BlobReader.open`."""
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

    def delete(self, object_id: str) -> None:
        """Delete an object's bytes; do nothing if it is absent."""
        ...

    def deleting(self) -> AbstractContextManager[None]:
        """Keep backups from beginning in the block; raise DeletionsHeld if one is under way."""
        ...


class GrowingFiles(BlockingFiles, Protocol):
    """A store whose staged bytes can all be read while they grow."""

    def open_staged(
        self, upload_id: str, data_key: DataKey | None = None
    ) -> BlockingObject | BlockingGrowing:
        """See `BlobReader.open_staged`."""
        ...

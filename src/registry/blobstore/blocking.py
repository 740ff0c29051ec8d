"""The interfaces of blocking stores, whose methods `BlobStore` calls in threads."""

# ruff: noqa: D102 - methods without a docstring are documented in `store`

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from registry.blobstore.base import DataKey, ListedBytes, Orphan, Stored
from registry.blobstore.reading import BlockingGrowing, BlockingObject
from registry.oci.digest import Digest


class BlockingStaged(Protocol):
    """The staged bytes of one upload (`Staged`)."""

    @property
    def offset(self) -> int: ...

    @property
    def closes_slowly(self) -> bool:
        """Return True if `close` may block."""

    def rewind_is_immediate(self, offset: int, *, is_sealed: bool = False) -> bool:
        """Return True if `rewind` will not block."""

    def rewind(
        self,
        offset: int,
        digests: Mapping[str, str] | None = None,
        algorithm: str | None = None,
        data_key: DataKey | None = None,
    ) -> None: ...

    def write(self, view: memoryview, /) -> None: ...

    def flush(self) -> Mapping[str, str]: ...

    def commit(self, expected: Digest | None) -> Stored: ...

    def discard(self) -> None: ...

    def close(self) -> None: ...


class BlockingFiles(Protocol):
    """The objects and staged bytes of a store; methods as in `BlobStore`."""

    def close(self) -> None:
        """Release the store; objects that it opened stay readable."""

    def open(
        self, object_id: str, size: int | None = None, data_key: DataKey | None = None
    ) -> BlockingObject: ...

    def open_staged(
        self, upload_id: str, data_key: DataKey | None = None
    ) -> BlockingObject | BlockingGrowing: ...

    def open_stored(self, object_id: str, stored_size: int) -> BlockingObject: ...

    def check(self, object_id: str, stored_size: int) -> None: ...

    def stage(
        self, upload_id: str, algorithm: str | None = None, data_key: DataKey | None = None
    ) -> BlockingStaged: ...

    def resume(self, upload_id: str) -> BlockingStaged: ...

    def stage_copy(
        self,
        upload_id: str,
        source_id: str,
        size: int,
        data_key: DataKey | None = None,
        source_key: DataKey | None = None,
    ) -> BlockingStaged: ...

    def resumable(self, upload_id: str, received: int, *, is_sealed: bool = False) -> int: ...

    def discard(self, upload_id: str) -> None: ...

    def check_room(self) -> None: ...

    def partitions(self) -> Sequence[str]: ...

    def list_objects(self, partition: str | None = None) -> Iterator[ListedBytes]: ...

    def list_ids(self, partition: str) -> Iterator[str]: ...

    def list_staged(self) -> Iterator[ListedBytes]: ...

    def set_aside(self, object_id: str, moment: int, *, staged_too: bool = True) -> bool: ...

    def list_orphans(self) -> Iterator[Orphan]: ...

    def take_back(self, object_id: str) -> bool: ...

    def delete_orphan(self, orphan: Orphan) -> None: ...

    def scan_alone(self) -> AbstractContextManager[bool]: ...

    def generation(self) -> str | None: ...

    def save_generation(self, generation: str) -> None: ...

    def delete(self, object_id: str) -> None:
        """Delete an object's bytes; do nothing if it is absent."""

    def deleting(self) -> AbstractContextManager[None]:
        """Prevent backups from beginning during the block.

        Raise `DeletionsHeld` if a backup is running.
        """

"""The interface by which the collector, the orphan scan and fsck list and delete objects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from registry.errors import StoreUnavailable


class ListedBytes(NamedTuple):
    """An object or staged bytes in a listing."""

    object_id: str
    stored_size: int


class Orphan(NamedTuple):
    """Stored bytes that had no row when they were found, and were set aside for some days."""

    object_id: str
    set_aside_at: int
    """Microseconds since the epoch."""
    is_object: bool
    """True for an object, False for staged bytes."""
    stored_size: int


class Deleted(NamedTuple):
    """The objects that were deleted."""

    object_ids: Sequence[str]
    refusal: StoreUnavailable | None = None
    """Why others were not deleted."""


class BlobSweeper(Protocol):
    """List, set aside and delete objects: for the collector, the orphan scan and fsck alone.

    Only the database of these bytes knows which may be deleted. So the store keeps the id of that
    database's last generation (`registry.gc.database_rollback`).
    """

    def partitions(self) -> Sequence[str]:
        """Return the names of the partitions by which objects are listed.

        The names never change, nor does the partition of an object.
        """
        ...

    def list_objects(self, partition: str | None = None) -> AsyncIterator[ListedBytes]:
        """Yield every object, or those of a partition, in no particular order."""
        ...

    def list_ids(self, partition: str) -> AsyncIterator[str]:
        """Yield the ids of a partition's objects; cheaper than `list_objects`."""
        ...

    def list_staged(self) -> AsyncIterator[ListedBytes]:
        """Yield all staged bytes by upload id."""
        ...

    async def set_aside(self, object_id: str, moment: int, *, staged_too: bool = True) -> bool:
        """Make an object, or staged bytes, an orphan since `moment`; return False if absent.

        Durable. The caller holds the bytes (`BlobWriter.resume`). Without `staged_too`, only an
        object.
        """
        ...

    def list_orphans(self) -> AsyncIterator[Orphan]:
        """Yield every orphan, in no particular order."""
        ...

    async def take_back(self, object_id: str) -> bool:
        """Put an orphan back where it was; return False if there is none. Durable.

        `BlobReader.open` and `BlobWriter.resume` do so for an absent id, since a row names it.
        """
        ...

    async def delete_orphan(self, orphan: Orphan) -> None:
        """Delete the bytes of an orphan; do nothing if it is absent.

        Raise `DeletionsHeld` if a backup is under way.
        """
        ...

    def scan_alone(self) -> AbstractAsyncContextManager[bool]:
        """Return a context manager that gives True to one process at a time, False to others."""
        ...

    async def generation(self) -> str | None:
        """Return the noted generation, or None."""
        ...

    async def note_generation(self, generation: str) -> None:
        """Replace the noted generation. Durable."""
        ...

    async def delete(self, object_ids: Sequence[str]) -> Deleted:
        """Delete objects; skip absent ones, and go on after one that cannot be deleted.

        Delete none while a backup is under way: then the refusal is `DeletionsHeld`.
        """
        ...

"""URLs at which clients fetch the bytes of objects themselves, past this process."""

from __future__ import annotations

from typing import Protocol


class BlobLinks(Protocol):
    """Make such URLs. Who has one can read the object for some minutes: it is in no log."""

    def known(self, object_id: str) -> str | None:
        """Return a URL that was made a moment ago, or None: then call `link`."""
        ...

    async def link(self, object_id: str, stored_size: int) -> str:
        """Return a URL of an object of `stored_size` bytes, which are there.

        Raises:
            ObjectUnknown, ObjectDamaged, StoreUnavailable: as `BlobReader.check`.

        """
        ...

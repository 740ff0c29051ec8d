"""The staged bytes of a fill, read once for all readers of this process that have fallen behind.

A reader that falls behind is seldom alone: if the process is busy, all do. If each opened the same
frames for itself, they would fall behind further.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final, NamedTuple

from registry.blobstore.base import BlobReader, DataKey, OpenObject, StagedDropped
from registry.blobstore.sealed_format import FRAME_BYTES

_PART_BYTES: Final = 256 * 1024
KEPT_PARTS: Final = 16
"""Parts that are kept at most, each of 256 KiB."""


class Stage(NamedTuple):
    """Where the bytes of a fill are staged."""

    stage_id: str
    data_key: DataKey | None

    def __repr__(self) -> str:
        return f"Stage({self.stage_id!r})"


class StagedParts:
    """The parts of one staged file that were read last; used on one event loop.

    The file is open, and parts are kept, while there is a reader.
    """

    def __init__(self, reader: BlobReader, stage: Stage) -> None:
        self._reader = reader
        self._stage = stage
        self._readers = 0
        self._opened: OpenObject | None = None
        self._parts: OrderedDict[int, bytes] = OrderedDict()
        self._turn = asyncio.Lock()

    @property
    def kept(self) -> int:
        """Return the number of parts that are kept."""
        return len(self._parts)

    def join(self) -> None:
        """Note one more reader."""
        self._readers += 1

    async def leave(self) -> None:
        """Note one reader less; with the last, close the file and keep nothing."""
        self._readers -= 1
        if not self._readers:
            self._parts.clear()
            opened, self._opened = self._opened, None
            if opened is not None:
                await opened.aclose()

    async def part_at(self, offset: int, staged: int) -> bytes:
        """Return some bytes from an offset on, if bytes up to `staged` can be read.

        Raises:
            ObjectUnknown, StagedDropped: they are gone.
            StoreUnavailable: they cannot be read.

        """
        part = self._kept(offset)
        if part:
            return part
        async with self._turn:
            part = self._kept(offset)  # another reader may have read it meanwhile
            if not part:
                await self._read(offset - offset % _PART_BYTES, staged)
                part = self._kept(offset)
        if not part:
            raise StagedDropped("fewer bytes are staged than were noted")
        return part

    def _kept(self, offset: int) -> bytes:
        """Return the rest of the part that has an offset, or nothing if it is not kept."""
        number, skipped = divmod(offset, _PART_BYTES)
        part = self._parts.get(number, b"")
        if len(part) <= skipped:
            return b""
        self._parts.move_to_end(number)
        return part[skipped:] if skipped else part

    async def _read(self, start: int, staged: int) -> None:
        """Read from the start of a part to the end of its frame, which is opened as a whole."""
        if self._opened is None:
            self._opened = await self._reader.open_staged(*self._stage)
        stop = min(start - start % FRAME_BYTES + FRAME_BYTES, staged)
        found = b"".join([each async for each in self._opened.stream(start, stop)])
        for at in range(0, len(found), _PART_BYTES):
            number = (start + at) // _PART_BYTES
            self._parts[number] = found[at : at + _PART_BYTES]
            self._parts.move_to_end(number)
        while len(self._parts) > KEPT_PARTS:
            self._parts.popitem(last=False)

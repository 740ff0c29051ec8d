"""Part of the composition root: read the bytes of pieces of buckets that follow each other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager

from cloudcore.storage.needs import StoredPiece
from registry.blobstore.base import DataKey, FileRegion, ObjectDamaged, ObjectUnknown, OpenObject
from registry.blobstore.filesystem import FilesystemStore
from registry.blobstore.inline import open_inline
from registry.errors import StoreUnavailable


class OpenPieces:
    """Pieces that follow each other; the first is open, others are opened when they are reached."""

    def __init__(
        self,
        store: FilesystemStore,
        pieces: Sequence[StoredPiece],
        keys: Sequence[DataKey | None],
        first: OpenObject,
    ) -> None:
        self._store = store
        self._pieces = pieces
        self._keys = keys
        self._first = first

    @property
    def length(self) -> int:
        """Return the number of bytes."""
        return sum(piece.size for piece in self._pieces)

    def file_region(self, start: int, stop: int) -> FileRegion | None:
        """Return a range of the first piece as a region of its file, or None."""
        if stop > self._pieces[0].size:
            return None
        return self._first.file_region(start, stop)

    def chunks(self, start: int, stop: int) -> Iterator[memoryview]:
        """Yield a range (`OpenBytes.chunks`)."""
        for number, begin, end in self._spans(start, stop):
            if number == 0:
                yield from self._first.shared_chunks(begin, end)
                continue
            piece, key = self._pieces[number], self._keys[number]
            with _damage_later():
                if piece.body is not None:
                    yield from open_inline(piece.body, piece.id, piece.size, key).chunks(begin, end)
                    continue
                opened = self._store.files.open(piece.id, piece.size, key)
            try:
                yield from opened.shared_chunks(begin, end)
            finally:
                opened.close()

    async def stream(self, start: int, stop: int) -> AsyncIterator[bytes]:
        """Yield a range in parts (`OpenBytes.stream`)."""
        for number, begin, end in self._spans(start, stop):
            if number == 0:
                async for part in self._first.stream(begin, end):
                    yield part
                continue
            with _damage_later():
                opened = await open_piece(self._store, self._pieces[number], self._keys[number])
            async with aclosing(opened):
                async for part in opened.stream(begin, end):
                    yield part

    async def aclose(self) -> None:
        """Close the first piece."""
        await self._first.aclose()

    def _spans(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Yield which bytes of which piece a range has."""
        at = 0
        for number, piece in enumerate(self._pieces):
            begin, end = max(start - at, 0), min(stop - at, piece.size)
            if begin < end:
                yield number, begin, end
            at += piece.size


async def open_piece(store: FilesystemStore, piece: StoredPiece, key: DataKey | None) -> OpenObject:
    """Open the bytes of a piece, wherever they are."""
    if piece.body is not None:
        return open_inline(piece.body, piece.id, piece.size, key)
    return await store.open(piece.id, piece.size, key)


@contextmanager
def _damage_later() -> Iterator[None]:
    """Raise `StoreUnavailable` for bytes that are not as they should be: the answer has begun."""
    try:
        yield
    except (ObjectUnknown, ObjectDamaged):
        raise StoreUnavailable("the stored bytes of an object are damaged") from None

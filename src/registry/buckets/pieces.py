"""Write a piece of a bucket's object, and read consecutive pieces in order."""

# ruff: noqa: D102 - methods without a docstring are documented in `cloudcore.storage.needs`

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field

from cloudcore.serving.asgi import FileRegion
from cloudcore.storage.needs import StoredPiece
from registry.blobstore.base import DataKey, ObjectDamaged, ObjectUnknown, OpenObject, Stored
from registry.blobstore.inline import open_inline, store_inline
from registry.blobstore.opening import FileStore
from registry.blobstore.store import Staged
from registry.errors import StoreUnavailable
from registry.oci.digest import digest_of
from registry.services.blobs.sealing import key_of
from registry.services.blobs.writing_keys import Seal


@dataclass(slots=True)
class StagedPiece:
    """A new piece, in memory as long as it is small enough to become inline."""

    store: FileStore
    piece_id: str
    staged: Staged
    seal: Seal | None
    inline_bytes: int
    few: bytearray | None = field(default_factory=bytearray)
    """The bytes while they are in memory; None once they are in the store."""
    is_committed: bool = False

    def write(self, view: memoryview, /) -> None:
        if self.few is None:
            self.staged.write(view)
            return
        if len(self.few) + len(view) <= self.inline_bytes:
            self.few += view
            return
        few, self.few = self.few, None
        if few:
            self.staged.write(memoryview(few))
        self.staged.write(view)

    def finish(self) -> StoredPiece:
        if self.few is not None:
            data = bytes(self.few)
            stored = store_inline(data, digest_of(data), self.piece_id, key_of(self.seal))
            return self._recorded(stored)
        stored = self.staged.commit(None)
        self.is_committed = True
        return self._recorded(stored)

    async def discard(self) -> None:
        if self.is_committed:
            await self.store.remove_duplicate(self.piece_id)
        else:
            await self.staged.discard()

    async def aclose(self) -> None:
        await self.staged.aclose()

    def _recorded(self, stored: Stored) -> StoredPiece:
        return StoredPiece(
            stored.object_id,
            stored.size,
            stored.stored_size,
            stored.digest.partition(":")[2],
            stored.encoding,
            stored.checksum,
            stored.body,
            None if self.seal is None else self.seal.kms_key_id,
            None if self.seal is None else self.seal.wrapped,
        )


@dataclass(slots=True)
class OpenPieces:
    """A range of consecutive pieces. The first is open; later ones are opened when reached."""

    store: FileStore
    pieces: Sequence[StoredPiece]
    keys: Sequence[DataKey | None]
    first: OpenObject
    start: int
    stop: int

    @property
    def length(self) -> int:
        """Return the number of bytes."""
        return self.stop - self.start

    def file_region(self) -> FileRegion | None:
        """Return the range as a region of a file; None if it spans pieces or is not in a file."""
        if self.stop > self.pieces[0].size:
            return None
        return self.first.file_region(self.start, self.stop)

    def chunks(self, skipped: int = 0) -> Iterator[memoryview]:
        for number, begin, end in self._spans(skipped):
            if number == 0:
                yield from self.first.shared_chunks(begin, end)
                continue
            piece, key = self.pieces[number], self.keys[number]
            with _damage_later():
                if piece.body is not None:
                    yield from open_inline(piece.body, piece.id, piece.size, key).chunks(begin, end)
                    continue
                opened = self.store.files.open(piece.id, piece.size, key)
            try:
                yield from opened.shared_chunks(begin, end)
            finally:
                opened.close()

    async def stream(self) -> AsyncIterator[bytes]:
        for number, begin, end in self._spans():
            if number == 0:
                async for part in self.first.stream(begin, end):
                    yield part
                continue
            with _damage_later():
                opened = await open_piece(self.store, self.pieces[number], self.keys[number])
            async with aclosing(opened):
                async for part in opened.stream(begin, end):
                    yield part

    async def aclose(self) -> None:
        """Close the first piece."""
        await self.first.aclose()

    def _spans(self, skipped: int = 0) -> Iterator[tuple[int, int, int]]:
        """Yield (piece number, start, stop) for the range without its first `skipped` bytes."""
        at = 0
        for number, piece in enumerate(self.pieces):
            begin, end = max(self.start + skipped - at, 0), min(self.stop - at, piece.size)
            if begin < end:
                yield number, begin, end
            at += piece.size


async def open_piece(store: FileStore, piece: StoredPiece, key: DataKey | None) -> OpenObject:
    """Open the bytes of a piece, from its row or the store; raise as `BlobReader.open` does."""
    if piece.body is not None:
        return open_inline(piece.body, piece.id, piece.size, key)
    return await store.open(piece.id, piece.size, key)


@contextmanager
def _damage_later() -> Iterator[None]:
    """Turn missing or damaged bytes into `StoreUnavailable`: the response has already begun."""
    try:
        yield
    except (ObjectUnknown, ObjectDamaged):
        raise StoreUnavailable("the stored bytes of an object are damaged") from None

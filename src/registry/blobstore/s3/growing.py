"""Staged bytes of a bucket, read while they grow.

In the process of the writer, a reader gets the bytes that are still in memory. In another process,
it gets the acknowledged bytes. But S3 returns no bytes of parts before the commit: a reader that
needs them waits for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from registry.blobstore.base import DataKey, ObjectUnknown, OpenObject, StagedDropped
from registry.blobstore.reading import PART_BYTES, BlockingObject, GrowthSignals
from registry.blobstore.reading import GrowingObject as _Growing
from registry.blobstore.s3.uploads import HeldUpload
from registry.blobstore.threads import Runner

if TYPE_CHECKING:
    from registry.blobstore.reading import BlockingGrowing

_END: Final = 1 << 62


class Seen(NamedTuple):
    """The readable bytes that a look has found."""

    part: bytes
    """Bytes from where the reader is; empty if they cannot be read yet."""
    size: int | None
    """Number of bytes so far; None if unknown."""
    committed: BlockingObject | None = None


class UploadFiles(Protocol):
    """The part of `registry.blobstore.s3.files.S3Files` that a reader of growing bytes needs."""

    def held(self, upload_id: str) -> HeldUpload | None:
        """Return the writer of this process that holds an upload, or None."""
        ...

    def is_set_aside(self, upload_id: str) -> bool:
        """Return True if an upload is an orphan."""
        ...

    def open_committed(self, upload_id: str, data_key: DataKey | None) -> BlockingObject:
        """Open the object that an upload has become; raise ObjectUnknown if there is none."""
        ...

    def acknowledged(
        self, upload_id: str, data_key: DataKey | None, more_than: int
    ) -> bytes | None:
        """Return the acknowledged bytes of an upload, if they are in a tail and more than given."""
        ...


class GrowingUpload:
    """An upload whose bytes are read; `data_key` opens them, if they are sealed."""

    def __init__(self, files: UploadFiles, upload_id: str, data_key: DataKey | None) -> None:
        self._files = files
        self._upload_id = upload_id
        self._data_key = data_key
        self._tail = b""
        """The acknowledged bytes, if no part of them was sent."""
        self._object: BlockingObject | None = None

    def look(self, offset: int, count: int) -> Seen:
        """Return the bytes at an offset, as far as they can be read.

        Raises:
            StagedDropped: they were discarded.

        """
        if self._object is not None:
            return Seen(b"", self._object.length, self._object)
        held = self._files.held(self._upload_id)
        if self._files.is_set_aside(self._upload_id):
            raise StagedDropped(f"the upload {self._upload_id} was set aside")
        if held is not None and held.encoder is not None:
            size = held.offset
            part = held.encoder.read(offset, count) if offset < size else b""
            return Seen(part or b"", size)
        try:
            self._object = self._files.open_committed(self._upload_id, self._data_key)
        except ObjectUnknown:
            more = self._files.acknowledged(self._upload_id, self._data_key, offset)
            self._tail = more or self._tail
            return Seen(self._tail[offset : offset + count], None)
        return Seen(b"", self._object.length, self._object)

    def read(self, offset: int, count: int) -> bytes:
        """Return bytes of the object."""
        assert self._object is not None
        chunks = self._object.chunks(offset, offset + count)
        with closing(chunks):  # type: ignore[type-var]
            return b"".join(bytes(chunk) for chunk in chunks)

    def close(self) -> None:
        """Release the object; calling it again does nothing."""
        opened, self._object = self._object, None
        if opened is not None:
            opened.close()


class GrowingObject(_Growing):
    """Staged bytes of a bucket (`registry.blobstore.reading.GrowingObject`)."""

    def __init__(
        self,
        upload: GrowingUpload,
        upload_id: str,
        run: Runner,
        signals: GrowthSignals,
        look_seconds: float,
    ) -> None:
        growing: BlockingGrowing = upload  # type: ignore[assignment] # only its `close` is called
        super().__init__(growing, upload_id, run, signals, look_seconds)
        self._upload = upload

    async def stream(self, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        """Yield a range in order, as it can be read."""
        if start < 0 or (stop is not None and stop < start):
            raise ValueError("a range starts at 0 or later and does not end before it starts")
        follower = self._signals.follow(self._upload_id)
        offset, end = start, _END if stop is None else stop
        try:
            while offset < end:
                follower.begin()
                count = min(end - offset, PART_BYTES)
                seen = await self._run(self._upload.look, offset, count)
                if seen.committed is not None:
                    size = self._length = seen.committed.length
                    if size < max(start, stop or 0):
                        raise ValueError("the range ends after the object")
                    while offset < min(end, size):
                        count = min(end, size, offset + PART_BYTES) - offset
                        yield await self._run(self._upload.read, offset, count)
                        offset += count
                    return
                if seen.size is not None and seen.size < offset > start:
                    raise StagedDropped("the staged bytes were cut off")
                if seen.part:
                    yield seen.part
                    offset += len(seen.part)
                else:
                    await follower.sleep(self._look_seconds)
        finally:
            self._signals.unfollow(self._upload_id, follower)

    async def whole(self) -> OpenObject:
        """Return this: its bytes are those of the object once it is committed."""
        return self

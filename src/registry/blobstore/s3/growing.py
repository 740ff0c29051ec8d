"""Staged bytes of a bucket, read while they grow.

In the process of the writer, a reader gets the bytes that are still in memory. In another process,
it gets the acknowledged bytes. But S3 returns no bytes of parts before the commit: a reader of
bytes that were sent in parts must wait for the commit.
"""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING

from registry.blobstore.base import DataKey, ObjectUnknown, StagedDropped
from registry.blobstore.reading import BlockingGrowing, BlockingObject, StagedGrowth, StagedLook

if TYPE_CHECKING:
    from registry.blobstore.s3.files import S3Files


class GrowingUpload(BlockingGrowing):
    """An upload that is read while it grows; `data_key` decrypts sealed bytes."""

    def __init__(self, files: S3Files, upload_id: str, data_key: DataKey | None) -> None:
        self._files = files
        self._upload_id = upload_id
        self._data_key = data_key
        self._tail = b""
        """The acknowledged bytes, if none of them were sent in parts."""
        self._object: BlockingObject | None = None

    def look(self, offset: int, count: int) -> StagedLook:
        """Return the bytes at an offset, as far as they can be read (`BlockingGrowing.look`)."""
        if self._object is None:
            held = self._files.held(self._upload_id)
            if self._files.is_set_aside(self._upload_id):
                raise StagedDropped(f"the upload {self._upload_id} was set aside")
            if held is not None and held.encoder is not None:
                size = held.offset
                part = held.encoder.read(offset, count) if offset < size else b""
                return StagedLook(part or b"", size)
            try:
                self._object = self._files.open_committed(self._upload_id, self._data_key)
            except ObjectUnknown:
                return self._look_at_tail(offset, count)
        return super().look(offset, count)

    def _look_at_tail(self, offset: int, count: int) -> StagedLook:
        try:
            more = self._files.acknowledged(self._upload_id, self._data_key, offset)
        except StagedDropped:
            with suppress(ObjectUnknown):  # it may have become an object between the two looks
                self._object = self._files.open_committed(self._upload_id, self._data_key)
            if self._object is None:
                raise
            return super().look(offset, count)
        self._tail = more or self._tail
        return StagedLook(self._tail[offset : offset + count], None)

    def growth(self) -> StagedGrowth:
        """Return the size of the committed object, which `look` has opened."""
        assert self._object is not None
        return StagedGrowth(self._object.length, is_committed=True)

    def read(self, offset: int, count: int) -> bytes:
        """Return bytes of the committed object."""
        assert self._object is not None
        chunks = self._object.chunks(offset, offset + count)
        with closing(chunks):  # type: ignore[type-var]
            return b"".join(bytes(chunk) for chunk in chunks)

    def close(self) -> None:
        """Release the object; calling it again does nothing."""
        opened, self._object = self._object, None
        if opened is not None:
            opened.close()

"""A staged file, plain or sealed, read while a writer of this process or another appends to it."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

from registry.blobstore.base import DataKey, StagedDropped
from registry.blobstore.disk.disk_io import disk_errors
from registry.blobstore.disk.folders import Folders, object_path
from registry.blobstore.reading import BlockingGrowing, StagedGrowth
from registry.blobstore.sealed.frame_format import (
    FRAME_BYTES,
    HEADER_BYTES,
    FrameCipher,
    SealBroken,
)
from registry.blobstore.sealed.frames import read_cipher, read_frame
from registry.blobstore.sealed.layout import Layout, Record, Slots, new_layout, slot_bytes


class GrowingFile(BlockingGrowing):
    """A staged file. While its name is in ``uploads``, the file may grow."""

    def __init__(self, folders: Folders, upload_id: str, descriptor: int) -> None:
        self._folders = folders
        self._upload_id = upload_id
        self.descriptor = descriptor
        self._is_open = True

    @classmethod
    def open(cls, folders: Folders, upload_id: str) -> GrowingFile | None:
        """Open a staged file, or return None if there is none."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        with suppress(FileNotFoundError):
            return cls(folders, upload_id, os.open(upload_id, flags, dir_fd=folders.uploads))
        return None

    def growth(self) -> StagedGrowth:
        """Return the size of the file, and whether it is committed (`BlockingGrowing.growth`)."""
        with disk_errors():
            # The file may move between two of these, but not twice: moving it needs the lock.
            for is_object in (False, True, False):
                if self._is_at(is_object=is_object):
                    return StagedGrowth(os.fstat(self.descriptor).st_size, is_object)
        raise StagedDropped(f"the upload {self._upload_id} was discarded")

    def read(self, offset: int, count: int) -> bytes:
        """Return bytes (`BlockingGrowing.read`)."""
        with disk_errors():
            found = os.pread(self.descriptor, count, offset)
        if len(found) < count:
            raise StagedDropped(f"the upload {self._upload_id} was cut off")
        return found

    def close(self) -> None:
        """Release the file; calling it again does nothing."""
        if self._is_open:
            self._is_open = False
            os.close(self.descriptor)

    def _is_at(self, *, is_object: bool) -> bool:
        folder = self._folders.objects if is_object else self._folders.uploads
        path = object_path(self._upload_id) if is_object else self._upload_id
        try:
            there = os.stat(path, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(self.descriptor))


_UNSURE: Final = 4
"""If the file extends this many frames past the start of a frame, that frame is whole: partial
frames, and the file sizes that record the length of a last frame, end before."""


class GrowingSealedFile(BlockingGrowing):
    """A sealed staged file; readers see its full frames, and a last frame at its end.

    So bytes become visible in steps of 1 MiB, and the rest when flushed or committed.
    """

    def __init__(self, file: GrowingFile, upload_id: str, data_key: DataKey) -> None:
        self._file = file
        self._upload_id = upload_id
        self._data_key = data_key
        self._cipher: FrameCipher | None = None
        self._layout: Layout = Slots()
        """The layout of the whole frames."""
        self._whole = 0
        self._rest = b""
        """The bytes of the last frame as last read; the writer may be moving the frame."""
        self._plain = memoryview(bytearray(FRAME_BYTES))
        self._held: tuple[Record, memoryview] | None = None
        """The record of the frame in `_plain`, and its bytes there."""

    def growth(self) -> StagedGrowth:
        """Return the number of visible bytes, and whether the upload is committed."""
        size, is_committed = self._file.growth()
        with disk_errors():
            return StagedGrowth(self._visible(size), is_committed)

    def read(self, offset: int, count: int) -> bytes:
        """Return bytes (`BlockingGrowing.read`)."""
        found = b""
        with disk_errors():
            while len(found) < count:
                number, skipped = divmod(offset + len(found), FRAME_BYTES)
                frame = self._frame(number)
                if len(frame) <= skipped:
                    raise StagedDropped(f"the upload {self._upload_id} was cut off")
                found += frame[skipped : skipped + count - len(found)]
        return found

    def close(self) -> None:
        """Release the file; calling it again does nothing."""
        self._file.close()

    def _visible(self, size: int) -> int:
        if size < HEADER_BYTES:
            self._layout.cut(0)
            self._whole, self._rest = 0, b""
            return 0
        if self._cipher is None:
            try:
                self._cipher = read_cipher(self._file.descriptor, self._data_key, self._upload_id)
            except SealBroken as error:
                raise StagedDropped(f"the upload {self._upload_id} has another key") from error
            self._layout = new_layout(is_packed=self._cipher.is_packed)
        before = self._whole
        if size < self._layout.start(before):
            self._whole = self._layout.before(size)
            self._layout.cut(self._whole)
        while (record := self._seen(size, is_last=False)) is not None:
            self._layout.add(record)
            self._whole += 1
        last = self._seen(size, is_last=True)
        if last is not None:
            self._rest = bytes(self._read(self._whole, last))
        elif self._whole != before or size < self._layout.start(self._whole) + len(self._rest):
            self._rest = b""
        return self._whole * FRAME_BYTES + len(self._rest)

    def _seen(self, size: int, *, is_last: bool) -> Record | None:
        """Return the next whole or last frame after the whole frames found so far, or None."""
        number = self._whole
        certain = self._layout.start(number) + _UNSURE * slot_bytes(self._layout)
        for record in self._layout.in_place(self._file.descriptor, number, size):
            if record.is_last != is_last or record.end > size:
                continue
            if record.is_whole and size >= certain:
                return record
            with suppress(SealBroken):
                self._read(number, record)
                return record
        return None

    def _frame(self, number: int) -> memoryview:
        """Return the decrypted bytes of a visible frame; raise `StagedDropped` if cut off."""
        if number >= self._whole:
            return memoryview(self._rest if number == self._whole else b"")
        try:
            return self._read(number, self._layout.record(number, FRAME_BYTES))
        except SealBroken as error:
            raise StagedDropped(f"the upload {self._upload_id} was cut off") from error

    def _read(self, number: int, record: Record) -> memoryview:
        if self._held is None or self._held[0] != record:
            assert self._cipher is not None
            self._held = None
            found = read_frame(self._file.descriptor, self._cipher, number, record, self._plain)
            self._held = record, found
        return self._held[1]

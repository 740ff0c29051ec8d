"""A sealed staged file, read while a writer of this process or another appends to it."""

from __future__ import annotations

from typing import Final

from registry.blobstore.base import DataKey, StagedDropped
from registry.blobstore.blocking import BlockingGrowing, Growth
from registry.blobstore.disk_io import disk_errors
from registry.blobstore.growing_file import GrowingFile
from registry.blobstore.sealed_format import (
    FRAME_BYTES,
    HEADER_BYTES,
    OVERHEAD,
    SLOT_BYTES,
    FrameCipher,
    FrameKind,
    SealBroken,
    frame_offset,
)
from registry.blobstore.sealed_frames import Record, read_cipher, read_frame

_UNSURE: Final = 4
"""A file that reaches so many frames further has a whole frame in its place: partial ones, and the
sizes that tell the length of a last frame, end before."""


class GrowingSealedFile(BlockingGrowing):
    """A sealed staged file, of which one sees whole frames, and a last one at its end.

    So bytes become visible 1 MiB at a time, and the rest when they are flushed or committed.
    """

    def __init__(self, file: GrowingFile, upload_id: str, data_key: DataKey) -> None:
        self._file = file
        self._upload_id = upload_id
        self._data_key = data_key
        self._cipher: FrameCipher | None = None
        self._whole = 0
        self._rest = b""
        """The bytes of the last frame that was seen; its writer may be moving it."""
        self._plain = memoryview(bytearray(FRAME_BYTES))
        self._held: Record | None = None
        """The record that `_plain` has."""

    def look(self) -> Growth:
        """Return the number of visible bytes, and whether they are all of an object."""
        size, is_committed = self._file.look()
        with disk_errors():
            return Growth(self._visible(size), is_committed)

    def read(self, offset: int, count: int) -> bytes:
        """Return bytes that `look` has seen."""
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
            self._whole, self._rest = 0, b""
            return 0
        if self._cipher is None:
            self._cipher = self._read_cipher()
        before = self._whole
        if size < frame_offset(before):
            self._whole = (size - HEADER_BYTES) // SLOT_BYTES
        while size >= frame_offset(self._whole + _UNSURE) or self._has(
            size, Record(FrameKind.WHOLE, self._whole, FRAME_BYTES)
        ):
            self._whole += 1
        start = frame_offset(self._whole) + OVERHEAD
        last = Record(FrameKind.LAST, self._whole, size - start)
        if self._has(size, last):
            self._rest = bytes(self._read(last))
        elif self._whole != before or size < start + len(self._rest):
            self._rest = b""
        return self._whole * FRAME_BYTES + len(self._rest)

    def _read_cipher(self) -> FrameCipher:
        try:
            return read_cipher(self._file.descriptor, self._data_key, self._upload_id)
        except SealBroken as error:
            raise StagedDropped(f"the upload {self._upload_id} has another key") from error

    def _has(self, size: int, record: Record) -> bool:
        """Return True if the file has a record, now in `_plain`."""
        if record.length < 0 or record.length > FRAME_BYTES or size < record.end:
            return False
        try:
            self._read(record)
        except SealBroken:
            return False
        return True

    def _frame(self, number: int) -> memoryview:
        """Return the bytes of a visible frame."""
        if number >= self._whole:
            return memoryview(self._rest if number == self._whole else b"")
        try:
            return self._read(Record(FrameKind.WHOLE, number, FRAME_BYTES))
        except SealBroken as error:
            raise StagedDropped(f"the upload {self._upload_id} was cut off") from error

    def _read(self, record: Record) -> memoryview:
        if self._held != record:
            assert self._cipher is not None
            self._held = None
            found = self._file.descriptor
            read_frame(found, self._cipher, record.place, record, self._plain)
            self._held = record
        return self._plain[: record.length]

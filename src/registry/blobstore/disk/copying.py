"""Copy the first bytes of an upload or an object; a writer may append to the upload meanwhile."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from registry.blobstore.base import DataKey, ObjectUnknown
from registry.blobstore.disk.disk_io import check_room, closing_fd, disk_errors
from registry.blobstore.disk.folders import Folders, object_path
from registry.blobstore.sealed.frame_format import FRAME_BYTES, SealBroken
from registry.blobstore.sealed.frames import find_record, read_cipher, read_frame, read_layout

_PART_BYTES: Final = 1024 * 1024
_LOOKS: Final = 3
"""Attempts to find the last record, which each writer may move once, between two attempts."""
_NO_COPY: Final = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL})
"""Errors of systems on which the kernel cannot copy between these files."""


def copy_prefix(folders: Folders, source_id: str, target: int, size: int) -> None:
    """Copy the first `size` bytes stored under `source_id` to the empty file `target`.

    Raise `ObjectUnknown` if there are fewer bytes, `OSError` if the disk failed.
    """
    with closing_fd(_open_bytes(folders, source_id)) as source:
        check_room(target, size)
        offset = 0
        while offset < size:
            copied = _copy_range(source, target, offset, size - offset)
            if not copied:
                raise ObjectUnknown(source_id)
            offset += copied


def prefix_of(
    folders: Folders, source_id: str, data_key: DataKey | None, size: int
) -> Iterator[memoryview]:
    """Yield the first `size` bytes of an upload or object, decrypted with `data_key` if sealed.

    A view is valid until the next. Raise `ObjectUnknown` if there are fewer bytes, or `data_key`
    does not decrypt them; `StoreUnavailable` if the disk failed.
    """
    with disk_errors(), closing_fd(_open_bytes(folders, source_id)) as source:
        if data_key is None:
            yield from _plain_prefix(source, source_id, size)
        elif size:
            try:
                yield from _sealed_prefix(source, source_id, data_key, size)
            except SealBroken as error:
                raise ObjectUnknown(source_id) from error


def _plain_prefix(source: int, source_id: str, size: int) -> Iterator[memoryview]:
    buffer = memoryview(bytearray(min(size, _PART_BYTES)))
    offset = 0
    while offset < size:
        count = os.preadv(source, [buffer[: size - offset]], offset)
        if not count:
            raise ObjectUnknown(source_id)
        yield buffer[:count]
        offset += count


def _sealed_prefix(
    source: int, source_id: str, data_key: DataKey, size: int
) -> Iterator[memoryview]:
    """Yield the bytes of all full frames, then the first bytes of the next frame.

    Raise `SealBroken` if a frame does not decrypt.
    """
    cipher = read_cipher(source, data_key, source_id)
    buffer = memoryview(bytearray(min(size, FRAME_BYTES)))
    whole, rest = divmod(size, FRAME_BYTES)
    layout = read_layout(source, whole, is_packed=cipher.is_packed)
    if layout.before(os.fstat(source).st_size) < whole:
        raise SealBroken("there are fewer bytes")
    for number in range(whole):
        yield read_frame(source, cipher, number, layout.record(number, FRAME_BYTES), buffer)
    if rest:
        buffer = memoryview(bytearray(FRAME_BYTES))
        looks = (find_record(source, cipher, layout, whole, rest, buffer) for _ in range(_LOOKS))
        if not any(looks):
            raise SealBroken("there are fewer bytes")
        yield buffer[:rest]


def _open_bytes(folders: Folders, object_id: str) -> int:
    """Open the file of an upload for reading, staged or committed; or raise `ObjectUnknown`."""
    flags = os.O_RDONLY | os.O_NOFOLLOW
    for is_object in (False, True, False):  # the file may move between two attempts
        folder = folders.objects if is_object else folders.uploads
        path = object_path(object_id) if is_object else object_id
        with suppress(FileNotFoundError):
            return os.open(path, flags, dir_fd=folder)
    raise ObjectUnknown(object_id)


def _copy_range(source: int, target: int, offset: int, count: int) -> int:
    """Copy bytes to the same offset of another file; return their number, 0 at the end."""
    try:
        return os.copy_file_range(source, target, count, offset, offset)
    except OSError as error:
        if error.errno not in _NO_COPY:
            raise
    part = os.pread(source, min(count, _PART_BYTES), offset)
    return os.pwrite(target, part, offset)

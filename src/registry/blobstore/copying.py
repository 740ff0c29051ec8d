"""Copy the first bytes of a staged file or an object, to which a writer may still append."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import Final

from registry.blobstore.base import ObjectUnknown
from registry.blobstore.disk_io import check_room
from registry.blobstore.folders import Folders, object_path

_PART_BYTES: Final = 1024 * 1024
_NO_COPY: Final = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL})
"""Errors of a system that cannot copy between these files by itself."""


def copy_prefix(folders: Folders, source_id: str, target: int, size: int) -> None:
    """Fill the empty file `target` with the first `size` bytes of an id.

    Raises:
        ObjectUnknown: there are fewer.
        OSError: the disk failed.

    """
    source = _open_bytes(folders, source_id)
    try:
        check_room(target, size)
        offset = 0
        while offset < size:
            copied = _copy_range(source, target, offset, size - offset)
            if not copied:
                raise ObjectUnknown(source_id)
            offset += copied
    finally:
        os.close(source)


def _open_bytes(folders: Folders, object_id: str) -> int:
    """Open a staged file, or the object it has become, for reading."""
    flags = os.O_RDONLY | os.O_NOFOLLOW
    for is_object in (False, True, False):  # it may move between two looks
        folder = folders.objects if is_object else folders.uploads
        path = object_path(object_id) if is_object else object_id
        with suppress(FileNotFoundError):
            return os.open(path, flags, dir_fd=folder)
    raise ObjectUnknown(object_id)


def _copy_range(source: int, target: int, offset: int, count: int) -> int:
    """Copy bytes to the same offset of another file; return how many, 0 at the end."""
    try:
        return os.copy_file_range(source, target, count, offset, offset)
    except OSError as error:
        if error.errno not in _NO_COPY:
            raise
    part = os.pread(source, min(count, _PART_BYTES), offset)
    return os.pwrite(target, part, offset)

"""Orphans in a filesystem store: files in their own folder.

Each is ``orphans/<microseconds since the epoch>.<object|staged>.<id>``. The name has the time of
setting aside, since the file's own times say when its bytes were written, and change with a copy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from cloudcore.resource_names import is_canonical_uuid
from registry.blobstore.base import Orphan
from registry.blobstore.disk.disk_io import flush_folder, names_in
from registry.blobstore.disk.folders import Folders, object_path, shard

_FOLDER: Final = "orphans"
_NAME: Final = re.compile(r"([0-9]{1,19})\.(object|staged)\.([0-9a-f-]{36})")


def set_aside(folders: Folders, object_id: str, moment: int, *, staged_too: bool) -> bool:
    """Move the file of an object, or of staged bytes, to the orphans; return False if absent.

    The new folder is flushed before the old one: a power loss in between leaves one name, or two
    names for the same file.
    """
    places = [(folders.objects, object_path(object_id), True)]
    if staged_too:
        places.append((folders.uploads, object_id, False))
    for folder, path, is_object in places:
        name = _name_of(object_id, moment, is_object=is_object)
        try:
            os.rename(path, name, src_dir_fd=folder, dst_dir_fd=folders.orphans)
        except FileNotFoundError:
            continue
        flush_folder(_FOLDER, folders.root)
        _flush_home(folders, object_id, is_object=is_object)
        return True
    return False


def listed(folders: Folders) -> Iterator[Orphan]:
    """Yield every orphan; skip files that were deleted meanwhile or are not orphans."""
    for name in names_in(_FOLDER, folders.root):
        orphan = _parsed(name)
        if orphan is not None:
            with suppress(FileNotFoundError):
                size = os.stat(name, dir_fd=folders.orphans, follow_symlinks=False).st_size
                yield orphan._replace(stored_size=size)


def take_back(folders: Folders, object_id: str) -> bool:
    """Move an orphan back to its former path, durably; return False if this id has none."""
    is_found = False
    for name in names_in(_FOLDER, folders.root):
        if not name.endswith(object_id):  # a fast test: there may be many, and a request waits
            continue
        orphan = _parsed(name)
        if orphan is None:
            continue
        path = object_path(object_id) if orphan.is_object else object_id
        folder = folders.objects if orphan.is_object else folders.uploads
        if _is_other_file(folders.orphans, name, folder, path):
            continue  # the id is in use by another file, which must not be replaced
        with suppress(FileNotFoundError):  # another process has put it back
            os.rename(name, path, src_dir_fd=folders.orphans, dst_dir_fd=folder)
        with suppress(FileNotFoundError):  # if both names are of one file, rename(2) removes none
            os.unlink(name, dir_fd=folders.orphans)
        _flush_home(folders, object_id, is_object=orphan.is_object)
        flush_folder(_FOLDER, folders.root)
        is_found = True
    return is_found


def delete(folders: Folders, orphan: Orphan) -> None:
    """Delete an orphan; do nothing if it is absent."""
    name = _name_of(orphan.object_id, orphan.set_aside_at, is_object=orphan.is_object)
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folders.orphans)


def _name_of(object_id: str, moment: int, *, is_object: bool) -> str:
    return f"{moment}.{'object' if is_object else 'staged'}.{object_id}"


def _parsed(name: str) -> Orphan | None:
    match = _NAME.fullmatch(name)
    if match is None or not is_canonical_uuid(match[3]):
        return None
    return Orphan(match[3], int(match[1]), match[2] == "object", 0)


def _flush_home(folders: Folders, object_id: str, *, is_object: bool) -> None:
    if is_object:
        flush_folder(shard(object_id), folders.objects)
    else:
        flush_folder("uploads", folders.root)


def _is_other_file(orphans: int, name: str, folder: int, path: str) -> bool:
    try:
        there = os.stat(path, dir_fd=folder, follow_symlinks=False)
        orphan = os.stat(name, dir_fd=orphans, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return not os.path.samestat(there, orphan)

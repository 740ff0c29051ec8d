"""Write the entries of a layer below a folder, in the form of a lower layer of overlayfs.

Every name is opened relative to its folder, and no symbolic link is ever followed, so that no entry
can reach anything outside. Part of the program `unpack`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from cloudcore.compute.images import IDS
from registry.image_roots.tar_entries import LayerRefused, Path, TarEntry, shown

_WHITEOUT: Final = b".wh."
_META: Final = b".wh..wh."
_OPAQUE: Final = b".wh..wh..opq"
_KEPT_MODE: Final = 0o1777
"""Permissions and the sticky bit, without setuid and setgid: no file runs as its owner or group."""
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class LayerTree:
    """A layer that is being written into an empty folder, to which nobody else writes."""

    def __init__(self, root: int, first_uid: int | None) -> None:
        """Write below the folder with the descriptor `root`.

        With `first_uid`, for which this process must be root, user and group ids of files start at
        that id. Without it, this user owns all files, and can read, write and remove them.
        """
        self._root = root
        self._first = first_uid
        self._opaque = f"{'user' if os.geteuid() else 'trusted'}.overlay.opaque"
        self._parent: tuple[Path, int] = (), os.dup(root)
        """The folder last written to, as path and descriptor: entries come folder by folder."""
        self._own_folder(root, 0o755, 0, 0)

    def close(self) -> None:
        """Close the open folder."""
        os.close(self._parent[1])

    def add(self, entry: TarEntry, data: Iterator[bytes]) -> None:
        """Write one entry.

        Raise `LayerRefused` if the entry is not allowed here, `OSError` if the disk is full or
        fails.
        """
        for each in (entry.uid, entry.gid):
            if each >= IDS:
                words = f"{_named(entry.path)} is of id {each}; the highest is {IDS - 1}"
                raise LayerRefused(words)
        if not entry.path:
            if entry.kind != "folder":
                raise LayerRefused("the layer's root is no folder")
            self._own_folder(self._root, entry.mode, entry.uid, entry.gid)
            return
        parent, name = self._open_parent(entry.path), entry.path[-1]
        if name.startswith(_WHITEOUT):
            self._hide(parent, name, entry)
            return
        match entry.kind:
            case "folder":
                self._add_folder(parent, name, entry)
            case "file":
                self._add_file(parent, name, entry, data)
            case "symlink":
                self._clear(parent, name, entry.path)
                os.symlink(entry.target, name, dir_fd=parent)
                self._own(parent, name, entry)
            case "hardlink":
                self._link(parent, name, entry)

    def _add_folder(self, parent: int, name: bytes, entry: TarEntry) -> None:
        was = _mode(parent, name)
        if was is None or not stat.S_ISDIR(was):
            self._clear(parent, name, entry.path)
            os.mkdir(name, 0o700, dir_fd=parent)
        made = os.open(name, _FOLDER, dir_fd=parent)
        try:
            if was is not None and stat.S_ISCHR(was):
                self._hide_below(made)
            self._own_folder(made, entry.mode, entry.uid, entry.gid)
        finally:
            os.close(made)

    def _add_file(self, parent: int, name: bytes, entry: TarEntry, data: Iterator[bytes]) -> None:
        self._clear(parent, name, entry.path)
        made = os.open(name, _NEW_FILE, 0o600, dir_fd=parent)
        try:
            for part in data:
                view = memoryview(part)
                while view:
                    view = view[os.write(made, view) :]
            if self._first is not None:
                os.fchown(made, self._first + entry.uid, self._first + entry.gid)
            os.fchmod(made, self._mode_of(entry.mode, 0o600))
            os.utime(made, (entry.mtime, entry.mtime))
        finally:
            os.close(made)

    def _link(self, parent: int, name: bytes, entry: TarEntry) -> None:
        """Add a hard link to a file that this layer already has."""
        linked = entry.linked
        missing = LayerRefused(
            f"{_named(entry.path)} is a hard link to {_named(linked)}, no file of this layer"
        )
        if not linked or linked == entry.path:
            raise missing
        source = self._walk(linked[:-1], missing)
        try:
            was = _mode(source, linked[-1])
            if was is None or not (stat.S_ISREG(was) or stat.S_ISLNK(was)):
                raise missing
            self._clear(parent, name, entry.path)
            os.link(linked[-1], name, src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)
        except OSError as error:
            if error.errno == errno.EMLINK:
                raise LayerRefused(f"{_named(linked)} has too many names") from None
            raise
        finally:
            os.close(source)

    def _hide(self, parent: int, name: bytes, entry: TarEntry) -> None:
        """Hide a name of the lower layers, or all their names in this folder (whiteouts).

        Names in this layer stay, whichever entry comes first (image-spec, "Whiteouts").
        """
        if entry.kind != "file":
            raise LayerRefused(f"{_named(entry.path)} is a whiteout, but no file")
        if name == _OPAQUE:
            self._hide_below(parent)
            return
        if name.startswith(_META):
            return  # AUFS's own metadata
        hidden = name.removeprefix(_WHITEOUT)
        if hidden in (b"", b".", b".."):
            raise LayerRefused(f"{_named(entry.path)} is a whiteout of no name")
        was = _mode(parent, hidden)
        if was is None:
            os.mknod(hidden, stat.S_IFCHR, os.makedev(0, 0), dir_fd=parent)
        elif stat.S_ISDIR(was):
            below = os.open(hidden, _FOLDER, dir_fd=parent)
            try:
                self._hide_below(below)
            finally:
                os.close(below)

    def _hide_below(self, folder: int) -> None:
        os.setxattr(folder, self._opaque, b"y")

    def _clear(self, parent: int, name: bytes, path: Path) -> None:
        """Remove what an earlier entry made under this name, as the later entry counts.

        Raise `LayerRefused` if that is a folder that is not empty.
        """
        was = _mode(parent, name)
        if was is None:
            return
        if not stat.S_ISDIR(was):
            os.unlink(name, dir_fd=parent)
            return
        try:
            os.rmdir(name, dir_fd=parent)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            raise LayerRefused(
                f"{_named(path)} is in the layer twice: as a folder, and as something else"
            ) from None

    def _open_parent(self, path: Path) -> int:
        """Return a descriptor of a path's parent folder; create the folder if no entry has."""
        wanted = path[:-1]
        if self._parent[0] != wanted:
            found = self._walk(wanted, None)
            os.close(self._parent[1])
            self._parent = wanted, found
        return self._parent[1]

    def _walk(self, path: Path, missing: LayerRefused | None) -> int:
        """Return a new descriptor of a folder; create missing ones, or raise `missing` if set."""
        found = os.dup(self._root)
        try:
            for depth, name in enumerate(path, 1):
                below = self._enter(found, name, path[:depth], missing)
                os.close(found)
                found = below
        except BaseException:
            os.close(found)
            raise
        return found

    def _enter(self, parent: int, name: bytes, path: Path, missing: LayerRefused | None) -> int:
        with suppress(FileNotFoundError, NotADirectoryError):
            return os.open(name, _FOLDER, dir_fd=parent)
        was = _mode(parent, name)
        if missing is not None:
            raise missing
        if was is not None and not stat.S_ISCHR(was):
            raise LayerRefused(f"an entry lies below {_named(path)}, which is no folder")
        if was is not None:
            os.unlink(name, dir_fd=parent)
        os.mkdir(name, 0o700, dir_fd=parent)
        made = os.open(name, _FOLDER, dir_fd=parent)
        self._own_folder(made, 0o755, 0, 0)
        if was is not None:
            self._hide_below(made)
        return made

    def _own(self, parent: int, name: bytes, entry: TarEntry) -> None:
        if self._first is not None:
            ids = self._first + entry.uid, self._first + entry.gid
            os.chown(name, *ids, dir_fd=parent, follow_symlinks=False)

    def _own_folder(self, folder: int, mode: int, uid: int, gid: int) -> None:
        if self._first is not None:
            os.fchown(folder, self._first + uid, self._first + gid)
        os.fchmod(folder, self._mode_of(mode, 0o700))

    def _mode_of(self, mode: int, least: int) -> int:
        """Return the mode to set; without `first_uid`, add `least` so that the owner has access."""
        return mode & _KEPT_MODE | (0 if self._first is not None else least)


def _mode(parent: int, name: bytes) -> int | None:
    """Return type and permissions of a name without following links; None if it is absent."""
    try:
        return os.lstat(name, dir_fd=parent).st_mode
    except FileNotFoundError:
        return None


def _named(path: Path) -> str:
    return shown(b"/".join(path))

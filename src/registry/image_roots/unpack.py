"""The program that unpacks one layer, whose blob it reads from standard input.

It is a separate process, so that no request waits for it, and its memory and time can be limited.
It holds the layer's lock: of two processes for the same layer, the second waits, and then finds the
layer unpacked. A layer is made in ``staging``, flushed, and moved to ``layers``, so that it appears
completely or not at all.

It answers on standard output, in lines of JSON. The first answer is ``{"state": "there"}`` if this
blob's layer is already unpacked, or ``"ready"`` for the blob. After the blob, the answer is
``"unpacked"``, ``"refused"`` or ``"failed"``. ``there`` and ``unpacked`` have the ``bytes`` and
``entries`` of the tar; the last two have ``words``, the reason.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from cloudcore.files import NO_ROOM, flush_folder
from registry.image_roots.file_locks import held
from registry.image_roots.layer_streams import Blob, Tar
from registry.image_roots.layer_tree import LayerTree
from registry.image_roots.tar_entries import LayerRefused, TarEntries

_MEMORY_BYTES: Final = 512 << 20
"""Maximum address space: a window of zstd, and the memory of Python."""
_CPU_SECONDS: Final = 1800
T = TypeVar("T")

_LOOK_PARTS: Final = 250
"""Entries and parts of files between two checks of free space."""
_RESERVED_PART: Final = 20
"""One in this many bytes, and files, of the disk stays free, but at most `_RESERVED_BYTES`."""
_RESERVED_BYTES: Final = 2 << 30


class Task(NamedTuple):
    """A layer to unpack, from the program's first argument."""

    folder: str
    """The layer store's folder with ``layers``, ``staging`` and ``locks``."""
    diff_id: str
    """The sha256 of the tar, in hex."""
    blob: str
    """The blob's digest, ``<algorithm>:<hex>``."""
    first_uid: int | None
    most_bytes: int
    most_entries: int


def main() -> None:
    """Unpack the layer that the first argument describes."""
    task = Task(**json.loads(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(10)
    os.umask(0o077)
    try:
        _unpack(task)
    except LayerRefused as refused:
        _say("refused", words=str(refused))
    except OSError as error:
        full = error.errno in NO_ROOM
        _say("failed", words="the disk of this machine is full" if full else f"{error.strerror}")
    except MemoryError:
        _say("refused", words="the layer takes too much memory to unpack")


def _unpack(task: Task) -> None:
    folder = Path(task.folder)
    layer, staged = folder / "layers" / task.diff_id, folder / "staging" / task.diff_id
    with held(folder / "locks" / task.diff_id):
        _remove(staged)
        known = layer / "blobs" / task.blob.replace(":", "-")
        if known.exists():
            _say("there", **_size_of(layer))
            return
        _say("ready")
        blob = Blob(sys.stdin.buffer, task.blob.partition(":")[0])
        tar = Tar(blob, task.most_bytes)
        if layer.exists():
            # Another blob claims to be the same layer: verify that it unpacks to it.
            tar.drain()
            _verify(task, blob, tar)
            known.touch()
            _flush(known.parent)
            _say("unpacked", **_size_of(layer))
            return
        try:
            size = _write(task, staged, blob, tar)
            (staged / "size.json").write_text(json.dumps(size))
            (staged / "blobs" / known.name).touch()
            _flush(staged)
            staged.rename(layer)
            flush_folder(layer.parent)
        except BaseException:
            _remove(staged)
            raise
        _say("unpacked", **size)


def _write(task: Task, staged: Path, blob: Blob, tar: Tar) -> dict[str, int]:
    """Unpack the tar into `staged`, and verify it; return its bytes and entries."""
    for each in (staged, staged / "blobs", staged / "tree"):
        each.mkdir(mode=0o711)
        each.chmod(0o711)
    root = os.open(staged / "tree", os.O_RDONLY | os.O_DIRECTORY)
    tree = LayerTree(root, task.first_uid)
    entries = TarEntries(tar, task.most_entries)
    room = _Room(root)
    for entry in entries:
        room.take(None)
        tree.add(entry, map(room.take, entries.data()))
    tar.drain()
    _verify(task, blob, tar)
    tree.close()
    os.close(root)
    return {"bytes": tar.size, "entries": entries.count}


def _size_of(layer: Path) -> dict[str, int]:
    found: dict[str, int] = json.loads((layer / "size.json").read_text())
    return found


def _verify(task: Task, blob: Blob, tar: Tar) -> None:
    """Raise `LayerRefused` unless blob and tar have the expected digests."""
    algorithm, _, digest = task.blob.partition(":")
    if blob.hexdigest() != digest:
        raise LayerRefused(f"the bytes of the blob {task.blob} are others: {algorithm} differs")
    if tar.diff_id() != task.diff_id:
        raise LayerRefused(
            f"the blob {task.blob} unpacks to sha256:{tar.diff_id()}, and the image's configuration"
            f" says sha256:{task.diff_id}"
        )


class _Room:
    """Checks from time to time that enough disk space is left for others, such as pushes."""

    def __init__(self, folder: int) -> None:
        self._folder = folder
        self._parts = 0

    def take(self, part: T) -> T:
        """Return `part` unchanged; raise `OSError` (ENOSPC) if there is too little space left."""
        if self._parts % _LOOK_PARTS == 0:
            self._look()
        self._parts += 1
        return part

    def _look(self) -> None:
        disk = os.fstatvfs(self._folder)
        reserved = min(disk.f_blocks * disk.f_frsize // _RESERVED_PART, _RESERVED_BYTES)
        has_files = not disk.f_files or disk.f_favail >= disk.f_files // _RESERVED_PART
        if disk.f_bavail * disk.f_frsize < reserved or not has_files:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _flush(folder: Path) -> None:
    """Flush the whole file system of `folder` with syncfs(2), faster than file by file."""
    libc = ctypes.CDLL(None, use_errno=True)
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if libc.syncfs(opened):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(opened)


def _remove(folder: Path) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _say(state: str, **more: object) -> None:
    sys.stdout.write(f"{json.dumps({'state': state, **more})}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

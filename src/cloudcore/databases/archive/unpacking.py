"""Unpack an untrusted tar into a folder.

It runs confined, as a program that imports only the standard library. The tar is its standard
input; the folder and the maximal number of bytes are its arguments. It fails, with a one-line
reason, for entries that are neither plain files nor folders, names outside the folder and repeated
names.
"""

from __future__ import annotations

import os
import resource
import sys
import tarfile
from pathlib import PurePosixPath

_MEMORY = 1 << 30
"""Bytes of address space: an untrusted tar may have headers of any size."""
_MOST_FILES = 2_000_000
_CHUNK = 1 << 18


def unpack(folder: str, most: int) -> None:
    """Unpack the compressed tar on standard input into `folder`.

    Raise `ValueError` if an entry is refused, or if there are more than `most` bytes or 2,000,000
    files.
    """
    left, files = most, 0
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|gz") as tar:
        for each in tar:
            path = _checked(each)
            files += 1
            left -= max(each.size, 0)
            if left < 0 or files > _MOST_FILES:
                raise ValueError(f"more than {most} bytes, or {_MOST_FILES} files")
            there = os.path.join(folder, *path.parts)  # noqa: PTH118 - of text, a million times
            if each.isdir():
                os.makedirs(there, 0o700, exist_ok=True)  # noqa: PTH103 - as above
            else:
                _write(tar, each, there)


def _checked(found: tarfile.TarInfo) -> PurePosixPath:
    path = PurePosixPath(found.name)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"a name that leads elsewhere: {found.name[:100]!r}")
    if not found.isdir() and not (found.isreg() and not found.issparse() and path.parts):
        raise ValueError(f"what is neither a file nor a folder: {found.name[:100]!r}")
    return path


def _write(tar: tarfile.TarFile, found: tarfile.TarInfo, there: str) -> None:
    os.makedirs(os.path.dirname(there), 0o700, exist_ok=True)  # noqa: PTH103, PTH120 - as above
    file = os.open(there, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    source = tar.extractfile(found)
    assert source is not None
    with os.fdopen(file, "wb") as target:
        while data := source.read(_CHUNK):
            target.write(data)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    try:
        unpack(sys.argv[1], int(sys.argv[2]))
    except (ValueError, OSError, EOFError, tarfile.TarError, MemoryError) as error:
        sys.exit(f"it has {error}" if type(error) is ValueError else f"it is damaged: {error}")

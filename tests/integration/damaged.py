"""Files of blobs, damaged in every way a disk or a person damages one."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from registry.metadata.blobs import damage
from registry.metadata.blobs.objects import find_object
from tests.inprocess import Registry


def flip(file: Path) -> None:
    """Change one bit in the middle."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def cut(file: Path) -> None:
    """Cut the last byte off."""
    os.truncate(file, file.stat().st_size - 1)


def grow(file: Path) -> None:
    """Append a byte."""
    with file.open("ab") as opened:
        opened.write(b"?")


def remove(file: Path) -> None:
    """Remove the file."""
    file.unlink()


DAMAGES: Final[dict[str, Callable[[Path], None]]] = {
    each.__name__: each for each in (flip, cut, grow, remove)
}


async def file_of(registry: Registry, blobs: Path, digest: str) -> Path:
    """Return the file that the account of `registry` keeps of a blob."""
    account = await registry.account_id()
    found = await registry.ctx.database.read(find_object, account, digest)
    assert found is not None
    return blobs / "objects" / found.stored_id[-2:] / found.stored_id


async def marked(registry: Registry) -> list[tuple[str, str]]:
    """Return the digest and the damage of every marked blob."""
    found = await registry.ctx.database.read(
        damage.damaged_objects, await registry.account_id(), 100
    )
    return [(each.digest, each.damage) for each in found]


@contextmanager
def unreadable(path: Path) -> Iterator[None]:
    """Let the disk fail in the block when this file is read, under any of its names."""
    failing, read = path.stat().st_ino, os.preadv

    def read_or_fail(descriptor: int, *given: Any) -> int:  # noqa: ANN401 - as preadv has it
        if os.fstat(descriptor).st_ino == failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(descriptor, *given)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "preadv", read_or_fail)
        yield

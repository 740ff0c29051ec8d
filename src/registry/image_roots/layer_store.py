"""The layers of images on this machine, each unpacked once, and shared by images.

    layers/<diff id>/tree             the files, in the form of a lower layer of overlayfs
    layers/<diff id>/blobs/<digest>   names a blob that is known to unpack to this layer
    layers/<diff id>/size.json        bytes and entries that were unpacked
    images/<digest>                   the layers of an image
    images/<digest>.unused            exists if the last call of `keep_only` did not name it
    staging/                          layers and notes that are being made or removed
    locks/                            a lock for each name above

All processes of the machine share these files. An image is recorded before its layers are unpacked,
and a layer is removed only under its lock, and only if no recorded image uses it. An image gets a
layer only if one of its blobs unpacks to that layer, not because its configuration names the layer:
knowing the digest of another account's layer gives no access.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from pathlib import Path
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from cloudcore.compute.images import ImageRefused
from cloudcore.errors import Unavailable
from cloudcore.files import flush_folder
from registry.image_roots.file_locks import held

MOST_BYTES: Final = 16 << 30
"""Maximum bytes of an unpacked image."""
MOST_ENTRIES: Final = 1_000_000
"""Maximum entries in the tars of an image's layers."""
_AT_ONCE: Final = 3
"""Layers that one process unpacks at once, each for another account."""

OpenBlob = Callable[[str], AbstractAsyncContextManager[AsyncIterator[bytes]]]
"""Opens a blob by its digest."""


class WantedLayer(NamedTuple):
    """A layer that an image needs, and the blob that contains it."""

    diff_id: str
    """The sha256 of the layer's tar, in hex."""
    blob: str
    """The digest of the blob to unpack."""


class _Size(NamedTuple):
    bytes: int
    entries: int


class LayerStore:
    """Stores layers below a folder of this machine; one per process."""

    def __init__(
        self,
        folder: Path,
        first_uid: int | None,
        most_bytes: int = MOST_BYTES,
        most_entries: int = MOST_ENTRIES,
    ) -> None:
        """Store layers in `folder`, which is created when needed.

        With `first_uid`, which needs root, user and group ids of files start at that id. All layers
        in the folder must be unpacked with the same `first_uid`.
        """
        self._folder = folder
        self._first_uid = first_uid
        self._most = _Size(most_bytes, most_entries)
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._accounts: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._layers, self._images = folder / "layers", folder / "images"
        self._staging, self._locks = folder / "staging", folder / "locks"

    def make_folders(self) -> None:
        """Create the missing folders of the store."""
        for each in (self._layers, self._images, self._staging, self._locks):
            each.mkdir(mode=0o711, parents=True, exist_ok=True)

    async def unpack(
        self, account_id: str, digest: str, wanted: Sequence[WantedLayer], open_blob: OpenBlob
    ) -> list[Path]:
        """Return the folders of an image's layers, after unpacking those that are missing.

        Raise `ImageRefused` if a layer has contents that are not allowed, or the unpacked image
        would be too large; `Unavailable` if the disk is full or fails, or the unpacking program was
        killed.
        """
        name = digest.removeprefix("sha256:")
        async with _in_thread(self._noted(name, wanted)):
            left = self._most
            for layer in wanted:
                size = await asyncio.to_thread(self._find, layer)
                if size is None:
                    account = self._accounts.setdefault(account_id, asyncio.Lock())
                    async with account, self._turns:
                        size = await self._start(layer, left, open_blob)
                left = _Size(left.bytes - size.bytes, left.entries - size.entries)
                if min(left) < 0:
                    raise ImageRefused(
                        f"the image has more than {self._most.bytes} bytes unpacked, or more than"
                        f" {self._most.entries} entries"
                    )
        # If an image has a layer twice, the lower one adds nothing: the upper one has its files.
        last = list(dict.fromkeys(each.diff_id for each in reversed(wanted)))
        return [self._layers / each / "tree" for each in reversed(last)]

    def keep_only(self, digests: Iterable[str]) -> None:
        """Remove layers that none of these images has, and files left by dead processes.

        An image that is being unpacked stays. Any other image is removed by the second call in a
        row that does not name it. This blocks while it deletes files.
        """
        if not self._folder.exists():
            return
        self.make_folders()  # a process may have been killed before it had made all
        named = {each.removeprefix("sha256:") for each in digests}
        for image in [each for each in self._images.iterdir() if not each.suffix]:
            self._keep_image(image, is_named=image.name in named)
        used = self._used()
        for layer in list(self._layers.iterdir()):
            if layer.name not in used:
                self._remove(layer)
        left = {each.name.partition(".")[0] for each in self._staging.iterdir()}
        for name in left.union(each.name for each in self._locks.iterdir()):
            with held(self._locks / name, wait=False) as is_held:
                if is_held:
                    for staged in self._staging.glob(f"{name}*"):
                        _remove_tree(staged)
                    (self._locks / name).unlink(missing_ok=True)

    def _keep_image(self, image: Path, *, is_named: bool) -> None:
        """Mark an image that was not named as unused; if already marked, remove its record."""
        unused = image.with_suffix(".unused")
        if is_named:
            unused.unlink(missing_ok=True)
            return
        with held(self._locks / f"image-{image.name}", wait=False) as is_held:
            if is_held and unused.exists():
                image.unlink(missing_ok=True)
                unused.unlink()
            elif is_held:
                unused.touch()

    def _remove(self, layer: Path) -> None:
        """Remove a layer, unless it is being unpacked or verified, or has become used."""
        lock, gone = self._locks / layer.name, self._staging / f"{layer.name}.removed"
        with held(lock, wait=False) as is_held:
            if is_held and layer.name not in self._used():
                _remove_tree(gone)
                layer.rename(gone)
                _remove_tree(gone)

    def _used(self) -> set[str]:
        """Return the diff ids of the layers of all recorded images."""
        used: set[str] = set()
        for image in self._images.iterdir():
            with suppress(FileNotFoundError):
                used.update(image.read_text().split())
        return used

    @contextmanager
    def _noted(self, name: str, wanted: Sequence[WantedLayer]) -> Iterator[None]:
        """Record the layers of an image; lock it during the block, so that the record stays."""
        self.make_folders()
        with held(self._locks / f"image-{name}", shared=True):
            image = self._images / name
            image.with_suffix(".unused").unlink(missing_ok=True)
            if not image.exists():
                made = self._staging / f"image-{name}.{os.urandom(8).hex()}"
                with made.open("w") as file:
                    file.write("\n".join(each.diff_id for each in wanted))
                    file.flush()
                    os.fsync(file.fileno())
                made.rename(image)
                flush_folder(self._images)
            yield

    def _find(self, layer: WantedLayer) -> _Size | None:
        """Return the size of a layer that is unpacked and known to come from its blob, else None.

        Return None also while another process makes or removes the layer.
        """
        at = self._layers / layer.diff_id
        with held(self._locks / layer.diff_id, shared=True, wait=False) as is_held:
            if not is_held or not (at / "blobs" / layer.blob.replace(":", "-")).exists():
                return None
            return _Size(**json.loads((at / "size.json").read_text()))

    async def _start(self, layer: WantedLayer, left: _Size, open_blob: OpenBlob) -> _Size:
        """Unpack a layer in a program of its own; return the unpacked bytes and entries.

        The program may unpack at most `left`. It gets the blob only if it asks for it. Raise
        `ImageRefused` if it refuses the layer, `Unavailable` if it fails.
        """
        task = {
            "folder": str(self._folder),
            **layer._asdict(),
            "first_uid": self._first_uid,
            "most_bytes": left.bytes,
            "most_entries": left.entries,
        }
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "registry.image_roots.unpack", json.dumps(task)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd="/",
            env={name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ},
            start_new_session=True,
        )
        try:
            answer = await _answer(program)
            if answer["state"] == "ready":
                await _feed(program, layer.blob, open_blob)
                answer = await _answer(program)
        finally:
            if program.returncode is None:
                program.kill()
            await program.wait()
        if answer["state"] == "refused":
            raise ImageRefused(answer["words"])
        if answer["state"] == "failed":
            raise Unavailable(f"the image cannot be unpacked: {answer['words']}")
        return _Size(answer["bytes"], answer["entries"])


async def _feed(program: asyncio.subprocess.Process, blob: str, open_blob: OpenBlob) -> None:
    """Send the bytes of the blob to the program, until the program stops reading."""
    assert program.stdin is not None
    async with open_blob(blob) as parts:
        with suppress(BrokenPipeError, ConnectionResetError):
            async for part in parts:
                program.stdin.write(part)
                await program.stdin.drain()
    with suppress(BrokenPipeError, ConnectionResetError):
        program.stdin.close()
        await program.stdin.wait_closed()


async def _answer(program: asyncio.subprocess.Process) -> dict[str, Any]:
    assert program.stdout is not None
    line = await program.stdout.readline()
    if not line:
        status = await program.wait()
        raise Unavailable(f"the image cannot be unpacked: its program ended with {status}")
    found: dict[str, Any] = json.loads(line)
    return found


@asynccontextmanager
async def _in_thread(block: AbstractContextManager[None]) -> AsyncIterator[None]:
    """Enter a context manager in a thread, as that may take long; leave it in the event loop."""
    await asyncio.to_thread(block.__enter__)
    try:
        yield
    finally:
        block.__exit__(None, None, None)


def _remove_tree(folder: Path) -> None:
    """Remove a folder or file, if it is there."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        folder.unlink(missing_ok=True)

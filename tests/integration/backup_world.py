"""A registry of a test in this process, its backups, and what is pushed to it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from registry.backup.manifest import Manifest, read_manifest
from registry.blobstore.filesystem import FilesystemStore
from registry.cli.main import main
from registry.gc.generations import Generations, check_generation
from registry.settings import Settings
from tests.fault.collected import check_image, push_image
from tests.inprocess import Registry, open_registry

LAYER: Final = b"a layer " * 1000
LATER: Final = b"a layer pushed during the backup " * 1000


class Site:
    """A registry in this process, its backups, and the folder into which they are restored."""

    def __init__(self, folder: Path, migrated: Path) -> None:
        self.data = folder / "data"
        self.target = folder / "backup"
        self.restored = folder / "restored"
        self.data.mkdir()
        shutil.copy(migrated, self.data / "metadata.db")

    @property
    def settings(self) -> Settings:
        return Settings(data=self.data)

    def serve(self, play: Callable[[Registry, FilesystemStore], object], data: Path) -> None:
        """Serve the registry of a folder while `play`, a coroutine function, runs."""

        async def run() -> None:
            with closing(FilesystemStore(data / "blobs")) as store:
                async with open_registry(f"sqlite:///{data / 'metadata.db'}", store) as registry:
                    history = Generations(registry.ctx, store)
                    await history.begin()
                    await play(registry, store)  # type: ignore[misc]
                    await history.end()

        asyncio.run(run())

    def back_up(self, *options: str) -> int:
        return main(["backup", str(self.target), "--data", str(self.data), *options])

    def restore(self, *options: str) -> int:
        return main(["restore", str(self.target), "--data", str(self.restored), *options])

    def manifest(self) -> Manifest:
        found = read_manifest(self.target)
        assert found is not None
        return found

    def objects(self, folder: Path | None = None) -> set[str]:
        """Return the names of all files below a folder of objects, of the backup if none given."""
        where = folder or self.target / "objects"
        return {each.name for each in where.rglob("*") if each.is_file()}


def pushed(layer: bytes) -> Callable[[Registry, FilesystemStore], object]:
    async def play(registry: Registry, _: FilesystemStore) -> None:
        await push_image(registry, layer)

    return play


def pulled(*layers: bytes) -> Callable[[Registry, FilesystemStore], object]:
    async def play(registry: Registry, store: FilesystemStore) -> None:
        await check_generation(registry.ctx, store)  # the database is not taken for an older one
        for layer in layers:
            await check_image(registry, layer)

    return play


def object_file(folder: Path, data: bytes) -> Path:
    (found,) = [each for each in folder.rglob("*-*") if each.read_bytes() == data]
    return found

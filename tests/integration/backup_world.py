"""A registry of a test in this process, its backups, and what is pushed to it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Final

import pytest

from registry.backup.manifest import BackupManifest, read_manifest
from registry.blobstore.disk.store import FilesystemStore
from registry.cli.main import main
from registry.gc.database_rollback import Generations, check_generation
from registry.settings.settings import Settings
from tests.databases import create_database, drop_database
from tests.fault.collected import check_image, push_image
from tests.inprocess import Registry, open_registry

on_both: Final = pytest.mark.parametrize(
    "site", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)], indirect=True
)
"""A test with this mark runs with each database; the others with SQLite."""
on_postgresql: Final = pytest.mark.parametrize(
    "site", [pytest.param("postgresql", marks=pytest.mark.postgresql)], indirect=True
)
LAYER: Final = b"a layer " * 1000
LATER: Final = b"a layer pushed during the backup " * 1000


@contextmanager
def interrupted(place: str) -> Iterator[None]:
    """Interrupt whatever calls a function of `registry.backup` in the block, as Ctrl-C does."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(f"registry.backup.{place}", interrupt)
        yield


class Site:
    """A registry in this process, its backups, and the folder into which they are restored."""

    def __init__(self, folder: Path, migrated: Path | None, url: str = "", empty: str = "") -> None:
        """Make a registry of SQLite, or one whose database `url` is there; `empty` is a new one."""
        self.data = folder / "data"
        self.target = folder / "backup"
        self.restored = folder / "restored"
        self.urls = {self.data: url, self.restored: empty}
        self.data.mkdir()
        if migrated is not None:
            shutil.copy(migrated, self.data / "metadata.db")

    @property
    def settings(self) -> Settings:
        return Settings(data=self.data, database_url=self.urls[self.data])

    def run(self, *arguments: str, data: Path) -> int:
        """Run ``entrepot`` with the settings of one of the two machines."""
        with pytest.MonkeyPatch.context() as patched:
            if self.urls[data]:
                patched.setenv("ENTREPOT_DATABASE_URL", self.urls[data])
            return main([*arguments, "--data", str(data)])

    def serve(self, play: Callable[[Registry, FilesystemStore], object], data: Path) -> None:
        """Serve the registry of a folder while `play`, a coroutine function, runs."""

        async def run() -> None:
            with self.opened_store(data) as store:
                url = self.urls[data] or f"sqlite:///{data / 'metadata.db'}"
                async with open_registry(url, store) as registry:
                    history = Generations(registry.ctx, store)
                    await history.begin()
                    await play(registry, store)  # type: ignore[misc]
                    await history.end()

        asyncio.run(run())

    def opened_store(self, data: Path) -> AbstractContextManager[FilesystemStore]:
        """Return the open store of one of the two machines."""
        return closing(FilesystemStore(data / "blobs"))

    def back_up(self, *options: str) -> int:
        return self.run("backup", str(self.target), *options, data=self.data)

    def push_and_back_up(self) -> None:
        """Push an image with the layer `LAYER`, and back the registry up."""
        self.serve(pushed(LAYER), self.data)
        assert self.back_up() == 0

    def restore(self, *options: str) -> int:
        return self.run("restore", str(self.target), *options, data=self.restored)

    def manifest(self) -> BackupManifest:
        found = read_manifest(self.target)
        assert found is not None
        return found

    def objects(self, folder: Path | None = None) -> set[str]:
        """Return the names of all files below a folder of objects, of the backup if none given."""
        where = folder or self.target / "objects"
        return {each.name for each in where.rglob("*") if each.is_file()}


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Return a registry whose database is migrated."""
    if getattr(request, "param", "sqlite") == "sqlite":
        yield Site(tmp_path, request.getfixturevalue("migrated_file"))
        return
    url = request.getfixturevalue("postgresql_database")
    empty = create_database(request.getfixturevalue("postgresql_url"), "template0")
    yield Site(tmp_path, None, url, empty)
    drop_database(empty)


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

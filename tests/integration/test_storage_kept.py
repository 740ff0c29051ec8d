"""The bytes of buckets are in backups, come back from them, and are checked by fsck."""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from cloudcore.db.base import Connection, Database
from cloudcore.kms.providers import EmbeddedProvider, Providers
from cloudcore.storage import buckets
from cloudcore.storage.bucket_rows import BucketUsage, change_usage
from registry.blobstore.disk.store import FilesystemStore
from registry.cli.main import main
from tests.databases import with_database
from tests.inprocess import ManualClock
from tests.kms_world import ACME, KEYRING, KmsWorld
from tests.storage_world import REGION, StorageWorld, open_storage_world, storage_world

LARGE: Final = b"large " * 10_000
FEW: Final = b"few"


class Site:
    """A data folder with a bucket, and a folder for its backup."""

    def __init__(self, folder: Path, migrated: Path) -> None:
        self.data, self.target, self.restored = (
            folder / name for name in ("data", "backup", "restored")
        )
        self.data.mkdir()
        shutil.copy(migrated, self.data / "metadata.db")
        self.use(self.data, self.fill, is_new=True)

    def use(
        self,
        data: Path,
        play: Callable[[StorageWorld], Awaitable[None]],
        *,
        is_new: bool = False,
    ) -> None:

        async def run(database: Database) -> None:
            if is_new:
                async with open_storage_world(database, data / "buckets") as world:
                    await play(world)
                return
            kms = KmsWorld(database, Providers(EmbeddedProvider(KEYRING)), ManualClock())
            with closing(FilesystemStore(data / "buckets")) as store:
                await play(storage_world(database, store, kms))

        with_database(f"sqlite:///{data / 'metadata.db'}", run)

    async def fill(self, world: StorageWorld) -> None:
        bucket = await world.make()
        await world.put(bucket, "large", LARGE)
        await world.put(bucket, "few", FEW)
        upload = await world.begin(bucket, "parts")
        await world.part(bucket, upload, 1, LARGE[1:])

    async def check(self, world: StorageWorld) -> None:
        bucket = await world.database.read(buckets.find_bucket, ACME, REGION, "photos")
        assert await world.get(bucket, "large") == LARGE
        assert await world.get(bucket, "few") == FEW
        (upload_id,) = await world.uploads(bucket)
        upload = (await world.begin(bucket, "other"))._replace(id=upload_id)
        piece = await world.part(bucket, upload, 2, b"end")
        await world.complete(bucket, upload, piece)

    def run(self, *command: str) -> int:
        return main([*command, "--data", str(self.data)])

    def files(self, folder: Path) -> list[Path]:
        return sorted(each for each in folder.rglob("*") if each.is_file())


@pytest.fixture
def site(tmp_path: Path, migrated_file: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    for name in [each for each in os.environ if each.startswith("ENTREPOT_")]:
        monkeypatch.delenv(name)
    return Site(tmp_path, migrated_file)


def test_buckets_come_back_from_a_backup(site: Site) -> None:
    assert site.run("backup", str(site.target), "--verify") == 0
    assert len(site.files(site.target / "pieces")) == 2
    assert site.run("backup", str(site.target)) == 0
    shutil.rmtree(site.data)
    assert main(["restore", str(site.target), "--data", str(site.restored)]) == 0
    site.use(site.restored, site.check)


def test_fsck_finds_what_is_wrong_with_buckets(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert site.run("fsck") == 0
    first, second = site.files(site.data / "buckets" / "objects")
    first.unlink()
    stored = bytearray(second.read_bytes())
    stored[-1] ^= 1
    second.write_bytes(stored)

    async def miscount(world: StorageWorld) -> None:
        def add(tx: Connection) -> None:
            bucket = buckets.find_bucket(tx, ACME, REGION, "photos")
            change_usage(tx, ACME, bucket.id, bucket.id, BucketUsage(1, 2, 3))

        await world.database.write(add)

    site.use(site.data, miscount)
    capsys.readouterr()
    gone, changed = (f"B1  piece {each.name} of '" for each in (first, second))
    hashes, counts = "': its stored bytes hash to", "B2  bucket photos: BucketUsage(objects=3"
    read = "0 blobs, 3 pieces of buckets and 0 manifests read"
    known = "known to be damaged: 0 blobs, 2 pieces of buckets"
    for command, status, words in (
        ("fsck --quick", 1, (gone, "': its bytes are gone", counts)),
        ("fsck", 1, (changed, hashes)),
        ("scrub", 1, (hashes, "2 pieces of 2 objects in buckets are damaged", read)),
        ("scrub status", 0, ("and in buckets: 1 of 3 pieces", known)),
    ):
        assert site.run(*command.split()) == status
        told = capsys.readouterr().out
        assert [each for each in words if each not in told] == []
        assert command != "fsck --quick" or second.name not in told
    assert site.run("backup", str(site.target)) == 1, "it tells what it could not copy"

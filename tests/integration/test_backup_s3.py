"""``entrepot backup`` and ``restore`` of a registry whose blobs are in a bucket, or are to be."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path
from typing import Final, cast

import pytest

from cloudcore.objects.stored_rows import NamedObject
from registry.backup import copying
from registry.backup.objects import CopyProgress
from registry.backup.stores import open_object_stores
from registry.backup.taking import BackupOptions, take_backup
from registry.blobstore.backups import HeldByAnother
from registry.blobstore.base import DeletionsHeld
from registry.blobstore.disk.folders import object_path
from registry.blobstore.disk.store import FilesystemStore
from registry.blobstore.locks import MachineLocks
from registry.blobstore.opening import BUCKETS
from registry.blobstore.s3.bucket import Bucket, Ranged
from registry.blobstore.s3.bucket_layout import GENERATION, object_key
from registry.blobstore.s3.files import S3Files
from registry.blobstore.s3.responses import StoreRefused
from registry.blobstore.s3.store import S3Store
from registry.errors import StoreUnavailable
from registry.oci.digest import digest_of
from registry.settings.settings import Settings
from registry.settings.store import StoreSettings
from tests.contract.blob_stores import listed, new_id
from tests.inprocess import Registry
from tests.integration.backup_world import (
    LATER,
    LAYER,
    Site,
    interrupted,
    object_file,
    pulled,
    pushed,
)
from tests.s3_servers import credentials, settings_for

pytestmark = pytest.mark.usefixtures("no_settings")

VARIABLES: Final = ("bucket", "endpoint", "region", "prefix")
NONE: Final = StoreSettings()


class BucketSite(Site):
    """A registry, and the machine on which it is restored, each with a bucket or a disk."""

    def __init__(self, folder: Path, migrated: Path) -> None:
        super().__init__(folder, migrated)
        self.stores = {self.data: NONE, self.restored: NONE}

    @property
    def settings(self) -> Settings:
        return replace(super().settings, store=self.stores[self.data])

    def run(self, *arguments: str, data: Path) -> int:
        with pytest.MonkeyPatch.context() as environment:
            for name in VARIABLES:
                value = getattr(self.stores[data], f"store_s3_{name}")
                environment.setenv(f"ENTREPOT_STORE_S3_{name.upper()}", value)
            return super().run(*arguments, data=data)

    def opened_store(self, data: Path) -> AbstractContextManager[FilesystemStore]:
        if not self.stores[data].store_s3_bucket:
            return super().opened_store(data)
        store = S3Store(S3Files(Bucket(self.stores[data]), locks=MachineLocks(data, "blobs")))
        return closing(cast("FilesystemStore", store))


@pytest.fixture
def site(tmp_path: Path, migrated_file: Path) -> Iterator[BucketSite]:
    with credentials():
        yield BucketSite(tmp_path, migrated_file)


@pytest.mark.parametrize(("before", "after"), [("disk", "bucket"), ("bucket", "disk")])
def test_a_registry_comes_back_into_a_bucket_or_onto_a_disk(
    site: BucketSite, capsys: pytest.CaptureFixture[str], before: str, after: str
) -> None:
    for data, kind in ((site.data, before), (site.restored, after)):
        site.stores[data] = settings_for("seaweedfs") if kind == "bucket" else NONE
    site.serve(pushed(LAYER), site.data)
    assert site.back_up("--verify") == 0
    site.serve(pushed(LATER), site.data)
    capsys.readouterr()
    assert site.back_up() == 0
    assert "3 blobs" in (told := capsys.readouterr().out)
    assert "1 of them new" in told
    assert site.restore() == 0
    told = capsys.readouterr().out
    assert "0 violations, 0 orphans" in told
    assert ("its blobs in the bucket" in told) == (after == "bucket")
    site.serve(pulled(LAYER, LATER), site.restored)
    assert (site.restored / "blobs").exists() == (after == "disk")


def test_a_restoration_into_a_bucket_goes_on_and_takes_no_bucket_that_is_used(
    site: BucketSite, capsys: pytest.CaptureFixture[str]
) -> None:
    site.push_and_back_up()
    used = site.stores[site.restored] = settings_for("moto")

    with interrupted("restoring._restore_database"):
        assert site.restore() == 130
    elsewhere = used.store_s3_endpoint.replace("127.0.0.1", "localhost")
    assert elsewhere != used.store_s3_endpoint
    for another in (
        replace(used, store_s3_prefix="another"),
        replace(used, store_s3_endpoint=elsewhere),
    ):
        site.stores[site.restored] = another
        assert site.restore() == 2  # the mark names the bucket
    site.stores[site.restored] = used
    with closing(Bucket(used)) as bucket:
        first, *_ = [entry.key for entry in bucket.listed("objects/")]
        bucket.put(first, b"cut")
        bucket.put(GENERATION, b"of an interrupted restoration")
    assert site.restore() == 0
    site.serve(pulled(LAYER), site.restored)
    capsys.readouterr()
    site.restored = site.restored.with_name("again")
    site.urls[site.restored] = ""
    site.stores[site.restored] = used
    assert site.restore() == 2
    assert "there are objects in the bucket" in capsys.readouterr().err
    assert not site.restored.exists()


def test_a_file_of_a_backup_that_cannot_be_read_keeps_no_other_from_a_bucket(
    site: BucketSite, capsys: pytest.CaptureFixture[str]
) -> None:
    site.serve(pushed(LATER), site.data)
    site.push_and_back_up()
    copy = object_file(site.target / "objects", LAYER)
    copy.unlink()
    copy.mkdir()  # cannot be read, as on a disk that fails
    site.stores[site.restored] = settings_for("moto")
    assert site.restore() == 1
    told = capsys.readouterr().out
    assert f"blob {digest_of(LAYER)}: " in told
    assert "damaged blobs: 1, images that need them: 1" in told
    site.serve(pulled(LATER), site.restored)


def test_what_is_gone_from_the_bucket_is_named_and_copied_once_it_is_back(
    site: BucketSite, capsys: pytest.CaptureFixture[str]
) -> None:
    store = site.stores[site.data] = settings_for("moto")
    site.serve(pushed(LAYER), site.data)
    with closing(Bucket(store)) as bucket:
        (key,) = [e.key for e in bucket.listed("objects/") if e.size == len(LAYER)]
        bucket.delete_all([key])
        assert site.back_up() == 1
        assert "its bytes are gone" in capsys.readouterr().out
        bucket.put(key, LAYER[1:])
        assert site.back_up() == 1
        assert f"{len(LAYER) - 1} bytes instead of {len(LAYER)}" in capsys.readouterr().out
        bucket.put(key, LAYER)
    assert site.back_up("--verify") == 0
    assert site.back_up("--link") == 2
    assert "leave --link out" in capsys.readouterr().err


def test_an_object_that_is_always_refused_keeps_no_other_from_the_backup(
    site: BucketSite, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = site.stores[site.data] = settings_for("moto")
    site.serve(pushed(LAYER), site.data)
    with closing(Bucket(store)) as bucket:
        sizes = {e.key: e.size for e in bucket.listed("objects/")}
    (refused,) = [key for key, size in sizes.items() if size == len(LAYER)]
    get = Bucket.get

    def refusing(self: Bucket, key: str, start: int, stop: int, etag: str = "") -> Ranged:
        if key == refused:
            raise StoreRefused("AccessDenied")
        return get(self, key, start, stop, etag)

    def away(*_: object) -> None:
        raise StoreUnavailable("the blob store does not answer")

    monkeypatch.setattr(copying, "_PAUSES", ())
    monkeypatch.setattr(Bucket, "get", refusing)
    assert site.back_up() == 1
    assert "its bytes cannot be read" in capsys.readouterr().out
    before = site.manifest()
    assert len(before.damaged) == 1
    assert site.objects() == {key.rpartition("/")[2] for key in sizes if key != refused}
    with monkeypatch.context() as broken:
        broken.setattr(Bucket, "find", away)
        assert site.back_up() != 0
    assert site.manifest() == before
    monkeypatch.setattr(Bucket, "get", get)
    assert site.back_up() == 0


def test_nothing_is_deleted_from_a_bucket_during_its_backup(site: BucketSite) -> None:
    site.stores[site.data] = settings_for("moto")

    async def use(registry: Registry, store: FilesystemStore) -> None:
        await pushed(LAYER)(registry, store)  # type: ignore[misc]
        (first, *_) = await listed(store.list_objects())
        loop = asyncio.get_running_loop()
        refusals = []

        def tell(progress: CopyProgress) -> None:
            deleted = asyncio.run_coroutine_threadsafe(store.delete([first.object_id]), loop)
            refusals.append(deleted.result().refusal)

        await asyncio.to_thread(take_backup, site.settings, site.target, tell, BackupOptions())
        assert refusals
        assert all(isinstance(each, DeletionsHeld) for each in refusals)
        assert (await store.delete([first.object_id])).refusal is None

    site.serve(use, site.data)


def test_one_machine_has_one_backup_and_one_scan_at_a_time(tmp_path: Path) -> None:
    blobs, buckets = MachineLocks(tmp_path, "blobs"), MachineLocks(tmp_path, "buckets")
    with blobs.scan_alone() as first, blobs.scan_alone() as second, buckets.scan_alone() as other:
        assert (first, second, other) == (True, False, True)
    with blobs.deleting(), buckets.deleting(), pytest.raises(HeldByAnother):
        blobs.deletions_held(0).__enter__()
    with blobs.deletions_held(0), pytest.raises(DeletionsHeld):
        buckets.deleting().__enter__()


def test_pieces_of_buckets_have_a_place_of_their_own(tmp_path: Path) -> None:
    row = NamedObject(new_id(), "", 5)
    (tmp_path / object_path(row.stored_id)).parent.mkdir()
    (tmp_path / object_path(row.stored_id)).write_bytes(b"piece")
    with credentials():
        settings = Settings(data=tmp_path, store=settings_for("moto"))
        with open_object_stores(settings) as stores, closing(Bucket(settings.store)) as bucket:
            copier = stores.pieces.copier_from(tmp_path)
            assert copier.size(row.stored_id) is None
            assert copier.copy(row) == copier.size(row.stored_id) == 5
            assert bucket.read(BUCKETS + object_key(row.stored_id)) == b"piece"
            assert stores.pieces.is_used()
            assert not stores.blobs.is_used()

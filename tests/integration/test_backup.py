"""``entrepot backup`` and ``restore``: whole at any moment, and what is acknowledged comes back."""

from __future__ import annotations

import asyncio
import errno
import os
import pwd
import secrets
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cloudcore.clock import uuid7
from registry.backup import files
from registry.backup.objects import CopyProgress
from registry.backup.taking import BackupOptions, BackupRefused, take_backup
from registry.blobstore.backups import HeldByAnother, deletions_held
from registry.blobstore.disk.store import FilesystemStore
from registry.blobstore.store import BlobSweeper
from registry.cli.main import main
from registry.gc.database_rollback import renew_generation
from registry.gc.orphans import blobs_of, set_orphans_aside
from registry.services.context import ServiceContext
from registry.settings.settings import Settings
from tests.collecting import at_once, collect
from tests.databases import planted
from tests.entrepot import ADMIN, initialized
from tests.fault.collected import GARBAGE, check_image, fill, push_blob, push_image
from tests.inprocess import Registry
from tests.integration.backup_world import (
    LATER,
    LAYER,
    Site,
    interrupted,
    object_file,
    on_both,
    pulled,
    pushed,
    site,
)

pytestmark = pytest.mark.usefixtures("no_settings")


__all__ = ["site"]


@on_both
def test_a_registry_comes_back_from_its_backup(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    async def use(registry: Registry, store: FilesystemStore) -> None:
        await fill(registry, store)  # something in every stage of the collector
        await push_image(registry, LAYER)
        opened = await registry.client.request("POST", "/v2/dev/app/blobs/uploads/")
        path = opened.headers["location"].removeprefix("http://registry.example")
        assert (await registry.client.request("PATCH", path, b"begun")).status == 202

    site.serve(use, site.data)
    assert site.back_up("--verify") == 0
    assert "is complete in" in capsys.readouterr().out
    shutil.rmtree(site.data)
    assert site.restore() == 0
    told = capsys.readouterr().out
    assert "0 violations, 0 orphans" in told
    assert f"entrepot serve --data {site.restored}" in told
    assert not (site.restored / "restore-under-way").exists()
    for database in site.restored.glob("metadata.db"):
        assert database.stat().st_mode & 0o777 == 0o600
    site.serve(pulled(LAYER), site.restored)


def test_every_folder_that_is_named_may_be_a_symbolic_link(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As /var/lib/entrepot that leads to a larger disk."""
    for name in ("data", "backup", "restored"):
        (tmp_path / f"disk-{name}").mkdir(mode=0o700)
        (tmp_path / name).symlink_to(tmp_path / f"disk-{name}")
    data, backup, restored = (str(tmp_path / name) for name in ("data", "backup", "restored"))
    initialized(tmp_path / "data")
    for command in (
        ["backup", backup, "--data", data],
        ["restore", backup, "--data", restored, "--root-key", f"{data}/root.key"],
    ):
        assert main(command) == 0, capsys.readouterr().err
    assert (tmp_path / "disk-restored" / "metadata.db").exists()


def test_what_the_collector_would_delete_between_the_two_steps_is_in_the_backup(
    site: Site,
) -> None:
    """Without the hold, the blob is deleted once the database that names it is copied."""

    async def use(registry: Registry, store: FilesystemStore) -> None:
        loop = asyncio.get_running_loop()
        ctx, account_id = at_once(registry.ctx), await registry.account_id()
        await push_image(registry, LAYER)
        await push_blob(registry, GARBAGE[0])
        before = site.objects(site.data / "blobs" / "objects")
        removed: list[int] = []

        async def meddle() -> None:
            """Collect all that no image needs, and push, after the database was copied."""
            removed.append((await collect(ctx, store, account_id)).counts["removed"])
            removed.append((await collect(ctx, store, account_id)).counts["removed"])
            await push_image(registry, LATER)

        def tell(progress: CopyProgress) -> None:
            if progress.stage == "blobs" and not removed:
                asyncio.run_coroutine_threadsafe(meddle(), loop).result()

        manifest, _ = await asyncio.to_thread(
            take_backup, site.settings, site.target, tell, BackupOptions()
        )
        assert manifest.damaged == []
        assert removed == [0, 0]
        assert site.objects() == before
        assert (await collect(ctx, store, account_id)).counts["removed"] == 1  # as without a backup
        await check_image(registry, LATER)

    site.serve(use, site.data)
    assert site.restore() == 0
    site.serve(pulled(LAYER), site.restored)


def test_orphans_stay_during_a_backup(site: Site) -> None:
    async def use(registry: Registry, store: FilesystemStore) -> None:
        await fill(registry, store)
        ctx = replace(registry.ctx, delays=replace(registry.ctx.delays, gc_orphan_seconds=0))
        places = [*store.partitions(), "uploads"]
        assert sum([await set_orphans_aside(ctx, store, place) for place in places]) == 2
        with deletions_held(site.data / "blobs"):
            assert await blobs_of(ctx, store).remove_overdue() == 0
        assert await blobs_of(ctx, store).remove_overdue() == 2

    site.serve(use, site.data)


def test_the_next_backup_copies_only_what_is_new_and_deletes_what_is_no_longer_needed(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copied: list[str] = []

    def counting(source: Path, target: Path, *, links: bool = False) -> None:
        copied.append(target.name)
        files.copy_file(source, target, links=links)

    monkeypatch.setattr("registry.backup.copying.copy_file", counting)
    site.push_and_back_up()
    assert len(copied) == 2  # a config and a layer
    first = site.manifest()

    async def change(registry: Registry, store: FilesystemStore) -> None:
        await push_image(registry, LATER)
        await push_blob(registry, GARBAGE[0])

    site.serve(change, site.data)
    copied.clear()
    assert site.back_up() == 0
    assert len(copied) == 2  # another layer, and the blob of no image

    async def collected(registry: Registry, store: FilesystemStore) -> None:
        for _ in range(2):
            await collect(at_once(registry.ctx), store, await registry.account_id())

    site.serve(collected, site.data)
    copied.clear()
    assert site.back_up() == 0
    assert copied == []
    assert site.objects() == site.objects(site.data / "blobs" / "objects")
    manifest = site.manifest()
    assert (manifest.registry, manifest.objects) == (first.registry, 3)
    assert {each.name for each in site.target.iterdir()} == {
        "backup.json",
        "backup.lock",
        *manifest.database.files,
        "objects",
        "pieces",
    }
    capsys.readouterr()
    assert site.restore("--quick") == 0
    site.serve(pulled(LAYER, LATER), site.restored)


def test_an_interrupted_backup_is_none_and_is_continued(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site.serve(pushed(LAYER), site.data)
    copied: list[str] = []

    def dying(source: Path, target: Path, *, links: bool = False) -> None:
        if copied:
            target.with_name(f"{target.name}{files.PART}").write_bytes(b"half")
            raise KeyboardInterrupt
        copied.append(target.name)
        files.copy_file(source, target, links=links)

    with monkeypatch.context() as patched:
        patched.setattr("registry.backup.copying.copy_file", dying)
        assert site.back_up() == 130
    assert site.restore() == 2
    assert "holds no complete backup: backup.json" in capsys.readouterr().err
    assert not site.restored.exists()
    assert site.back_up() == 0
    assert "2 blobs, 8.0 kB; 1 of them new, " in capsys.readouterr().out
    assert len(site.objects()) == 2
    assert site.restore() == 0


@on_both
def test_a_backup_that_fails_leaves_no_copy_of_the_database(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.serve(pushed(LAYER), site.data)
    (site.data / "root.key").write_bytes(b"a secret")
    options = BackupOptions(includes_root_key=True)
    for fails in (OSError(errno.ENOSPC, "full"), KeyboardInterrupt()):

        def failing(*_: object, fails: BaseException = fails, **__: object) -> None:
            raise fails

        for place in ("pages", "objects.copy_objects", "flush_folder", "write_manifest"):
            tell = failing if place == "pages" else lambda _: None
            with monkeypatch.context() as faulty:
                if place != "pages":
                    faulty.setattr(f"registry.backup.taking.{place}", failing)
                with pytest.raises(type(fails)):
                    take_backup(site.settings, site.target, tell, options)
            left = {each.name for each in site.target.iterdir()}
            assert left == {"backup.lock", "objects", "pieces"}, place


def test_a_backup_whose_manifest_is_written_stays_whatever_fails_then(site: Site) -> None:
    site.serve(pushed(LAYER), site.data)
    with interrupted("manifest.flush_folder"):
        assert site.back_up() == 130
    assert site.restore() == 0
    site.serve(pulled(LAYER), site.restored)


def test_the_next_backup_begins_by_deleting_what_a_killed_one_left_and_nothing_else(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.push_and_back_up()
    before = {each.name for each in site.target.iterdir()}
    left = f"metadata-{uuid7()}.db"
    for name in (left, f"{left}-journal", f"{left}-wal", f"{left}-shm", "root.key.part"):
        (site.target / name).write_bytes(b"half")
    others = {"metadata-mine.db", f"{left}.bak", f"old-{left}"}
    for name in others:
        (site.target / name).write_bytes(b"kept by somebody")

    def dying(*_: object) -> None:
        assert {each.name for each in site.target.iterdir()} == before | others
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("registry.backup.taking.copy_database", dying)
        assert site.back_up() == 130
    assert site.back_up() == 0
    assert {each.name for each in site.target.iterdir()} >= others


def test_a_backup_by_another_user_than_the_owner_of_the_data_is_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """SQLite's files beside the database would be that user's, and `serve` could not open them."""
    site.serve(pushed(LAYER), site.data)
    before = {each.name for each in site.data.iterdir()}
    owner = pwd.getpwuid(os.geteuid()).pw_name
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    assert site.back_up() == 2
    told = capsys.readouterr().err
    assert f"belongs to {owner}, and" in told
    assert f"runuser -u {owner} -- entrepot backup" in told
    assert {each.name for each in site.data.iterdir()} == before
    assert not site.target.exists()


def test_an_interrupted_restoration_is_continued(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site.push_and_back_up()

    with interrupted("restoring.prepare"):
        assert site.restore() == 130
    (site.restored / "metadata.db-wal").write_bytes(b"of before")
    before = {each.name for each in site.restored.iterdir()}
    for command in (["serve"], ["fsck"], ["dev"], ["backup", str(site.target)], ["gc", "orphans"]):
        assert site.run(*command, data=site.restored) == 2
        assert "run the same 'entrepot restore' again" in capsys.readouterr().err
    assert {each.name for each in site.restored.iterdir()} == before

    async def dying_late(ctx: ServiceContext, sweeper: BlobSweeper) -> None:
        await renew_generation(ctx, sweeper)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("registry.backup.restoring.renew_generation", dying_late)
        assert site.restore() == 130
    assert site.restore() == 0
    site.serve(pulled(LAYER), site.restored)
    assert site.restore() == 2  # it is no longer empty


def test_links_share_the_bytes(site: Site) -> None:
    site.serve(pushed(LAYER), site.data)
    assert site.back_up("--link") == 0
    stored = object_file(site.data / "blobs" / "objects", LAYER)
    assert stored.samefile(object_file(site.target / "objects", LAYER))
    shutil.rmtree(site.data)
    assert site.restore() == 0
    site.serve(pulled(LAYER), site.restored)


def test_a_backup_is_refused_where_it_would_do_harm(
    site: Site, tmp_path: Path, migrated_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site.serve(pushed(LAYER), site.data)

    def refusal(target: Path, status: int = 2, of: Site = site) -> str:
        assert main(["backup", str(target), "--data", str(of.data)]) == status
        return capsys.readouterr().err

    for target in (site.data / "backup", site.data, tmp_path):
        assert "one inside the other" in refusal(target)
    home = tmp_path / "home"
    home.mkdir()
    (home / "letter").touch()
    assert "has other files" in refusal(home)
    (tmp_path / "other").mkdir()
    other = Site(tmp_path / "other", migrated_file)
    other.serve(pushed(LATER), other.data)
    assert site.back_up() == 0
    with pytest.MonkeyPatch.context() as copying:
        copying.setattr("registry.backup.taking.copy_database", None)  # not even a copy is made
        assert "has the backup of another registry" in refusal(site.target, of=other)
    with files.locked(site.target / "backup.lock"):
        assert "is under way" in refusal(site.target, 1)
    options = BackupOptions(patience_seconds=0)
    with deletions_held(site.data / "blobs"), pytest.raises(HeldByAnother):
        take_backup(site.settings, tmp_path / "second", lambda _: None, options)
    absent = ["backup", str(tmp_path / "fourth"), "--data", str(tmp_path / "absent")]
    assert main(absent) == 2
    assert f"there is no account in {tmp_path / 'absent'}" in capsys.readouterr().err
    assert not (tmp_path / "fourth").exists()
    empty = planted(tmp_path / "empty")
    (empty / "blobs" / "objects").mkdir(parents=True)
    with pytest.raises(BackupRefused, match="no account"):
        take_backup(Settings(data=empty), tmp_path / "third", lambda _: None, options)


def test_a_restoration_is_refused_where_it_would_do_harm(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    def refusal(into: Path = site.restored) -> str:
        assert site.run("restore", str(site.target), data=into) == 2
        return capsys.readouterr().err

    site.serve(pushed(LAYER), site.data)
    assert "there is no folder" in refusal()
    assert site.back_up() == 0
    assert "is not empty" in refusal(site.data)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("ENTREPOT_DATABASE_URL", f"sqlite:///{site.data / 'metadata.db'}")
        assert "there is a database already" in refusal()
    database = site.target / site.manifest().database.file
    kept = database.read_bytes()
    database.write_bytes(kept[:-1] + b"?")
    assert "its SHA-256 is not the one" in refusal()
    database.write_bytes(kept)
    for manifest, words in (('{"format": 2}', "has the format 2"), ("{", "is damaged")):
        (site.target / "backup.json").write_text(manifest)
        assert words in refusal()
    assert not site.restored.exists()


def test_the_root_key_is_in_a_backup_only_if_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, target, restored = (tmp_path / name for name in ("data", "backup", "restored"))
    initialized(data)
    key = (data / "root.key").read_bytes()
    back_up = ["backup", str(target), "--data", str(data)]
    restore = ["restore", str(target), "--data", str(restored)]
    assert main(back_up) == 0
    assert "It has no root key" in capsys.readouterr().out
    assert all(key not in each.read_bytes() for each in target.rglob("*") if each.is_file())
    assert main(restore) == 2
    assert "give the copy that you keep elsewhere with --root-key" in capsys.readouterr().err
    other = tmp_path / "other.key"
    other.touch(0o600)
    other.write_bytes(secrets.token_bytes(32))
    assert main([*restore, "--root-key", str(other)]) == 2
    assert "is not the root key of this backup" in capsys.readouterr().err
    short = tmp_path / "short.key"
    short.touch(0o600)
    short.write_bytes(b"short")
    assert main([*restore, "--root-key", str(short)]) == 2
    assert "bytes, not 32" in capsys.readouterr().err
    assert not restored.exists()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("ENTREPOT_ROOT_KEY_FILE", str(data / "root.key"))
        assert main(restore) == 0
    assert not (restored / "root.key").exists(), "it stays where it is"
    shutil.rmtree(restored)
    assert main([*restore, "--root-key", str(data / "root.key")]) == 0
    assert (restored / "root.key").read_bytes() == key
    assert (restored / "root.key").stat().st_mode & 0o777 == 0o600
    assert main([*back_up, "--include-root-key"]) == 0
    assert (target / "root.key").read_bytes() == key
    shutil.rmtree(restored)
    assert main(restore) == 0
    assert (restored / "root.key").read_bytes() == key
    shutil.rmtree(restored)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("ENTREPOT_ROOT_KEY_FILE", str(other))
        assert main(restore) == 2
        assert "is another root key than" in capsys.readouterr().err

    with interrupted("taking.write_manifest"):
        assert main(back_up) == 130
    assert (target / "root.key").exists()  # the backup there still says that it has it
    assert main(back_up) == 0
    assert not (target / "root.key").exists()
    assert main(["reset-password", ADMIN, "--data", str(data)]) == 0

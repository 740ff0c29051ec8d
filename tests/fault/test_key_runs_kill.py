"""Upgrades and runs about keys whose processes are killed: all is whole, and they go on."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from cloudcore.jobs.runs import Run
from registry.blobstore.disk.store import FilesystemStore
from registry.gc.data_keys import shred_deleted_keys
from registry.gc.fsck import check
from registry.gc.orphans import EVERY_SECONDS, OrphanScan
from registry.metadata.collector.erasure import keys_to_erase
from registry.metadata.collector.plain_objects import count_plain
from registry.metadata.database import migrate
from registry.oci.digest import digest_of
from registry.services.blobs import rewrapping
from registry.services.context import ServiceContext
from registry.settings.groups import Delays
from tests.collecting import at_once, collect
from tests.fault import key_run_worker
from tests.fault.deaths import let_die
from tests.integration.stored_forms import push_image
from tests.jobs import end_leases
from tests.keyed_registry import KeyedRegistry, open_keyed_registry

DAY: Final = 24 * 3600
SECRET: Final = b"a layer that nobody may find "
LAYERS: Final = [SECRET + b"%d" % number * 60_000 for number in range(4)]
SEAL_STEPS: Final = ("in a copy", "after a copy", "before the rows", "after the rows")


def kill(*arguments: str) -> None:
    """Let a process die by itself."""
    let_die("tests.fault.key_run_worker", *arguments)


async def fill(keyed: KeyedRegistry) -> None:
    for number, layer in enumerate(LAYERS):
        await push_image(keyed.registry, layer, f"v{number}", "app" if number else "other")
    image = await push_image(keyed.registry, LAYERS[1], "gone", "other")
    gone = await keyed.registry.client.request("DELETE", f"/v2/dev/other/manifests/{image}")
    assert gone.status == 202


async def check_all(keyed: KeyedRegistry) -> None:
    report = await check(keyed.database, keyed.store, lambda _: None, clock=keyed.ctx.clock)
    assert report.violations == []
    for number, layer in enumerate(LAYERS):
        repository = "app" if number else "other"
        assert await keyed.pull(digest_of(layer), repository) == (200, layer)


async def check_ends_sealed(keyed: KeyedRegistry, store: FilesystemStore, folder: Path) -> None:
    """Seal the rest, and find no plain byte once the collector and the orphan scan have run."""
    await keyed.seal()
    assert (await keyed.database.read(count_plain)).object_count == 0
    await check_all(keyed)
    scan = OrphanScan(keyed.ctx, store)
    for _ in range(3):
        keyed.registry.clock.advance(EVERY_SECONDS + 1)
        await scan.turn()
    keyed.registry.clock.advance(8 * DAY)
    await scan.turn()
    await collect(at_once(keyed.ctx), store, keyed.account_id)
    await check_all(keyed)
    assert await asyncio.to_thread(files_with, folder, SECRET) == []


def files_with(folder: Path, secret: bytes) -> list[Path]:
    files = [each for each in folder.rglob("*") if each.is_file()]
    return [each for each in files if secret in each.read_bytes()]


async def test_migrations_and_a_seal_run_that_are_killed(bare_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "blobs"
    for number in (1, 40, 100):
        await asyncio.to_thread(kill, "migrate", bare_url, str(number))
    await asyncio.to_thread(migrate, bare_url)
    with closing(FilesystemStore(folder)) as store:
        async with open_keyed_registry(bare_url, store) as keyed:
            await fill(keyed)
            await check_all(keyed)
            plain = (await keyed.database.read(count_plain)).object_count
            for step in SEAL_STEPS:
                await asyncio.to_thread(kill, "seal", bare_url, str(folder), step)
                await check_all(keyed)
            assert 0 < (await keyed.database.read(count_plain)).object_count < plain
            await check_ends_sealed(keyed, store, folder)


@pytest.mark.parametrize("step", ["before the rows", "after the rows"])
async def test_a_rewrap_that_is_killed(metadata_url: str, tmp_path: Path, step: str) -> None:
    folder = tmp_path / "blobs"
    with closing(FilesystemStore(folder)) as store:
        async with open_keyed_registry(metadata_url, store) as keyed:
            contents = [b"blob %d" % number for number in range(10)]
            for content in contents:
                target = f"/v2/dev/app/blobs/uploads/?digest={digest_of(content)}"
                assert (await keyed.client.request("POST", target, content)).status == 201
            old, new = await keyed.platform_key(), await keyed.make_key("new")
            await keyed.bind(new)
            run: Run = await keyed.start_rewrap()
            await asyncio.to_thread(kill, "rewrap", metadata_url, str(folder), step)
            keys = sorted((await keyed.link_keys()).values(), key=str)
            moved = key_run_worker.PORTION
            assert keys == sorted([new.id] * moved + [old.id] * (10 - moved))
            assert await asyncio.to_thread(end_leases, metadata_url) == [rewrapping.KIND]
            ended = await keyed.finish(run)
            assert (ended.state, ended.counts["moved"], ended.done) == ("succeeded", 10, 10)
            assert ended.total == 10
            assert set((await keyed.link_keys()).values()) == {new.id}
            for content in contents:
                assert await keyed.pull(digest_of(content)) == (200, content)
                assert await keyed.wraps_of(digest_of(content)) == [new.id]
            assert rewrapping.PORTION == 100


async def test_a_shredding_that_is_killed_at_each_step(metadata_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "blobs"
    with closing(FilesystemStore(folder)) as store:
        async with open_keyed_registry(metadata_url, store) as keyed:
            lost, kept = await fill_to_shred(keyed, store)
            for step in key_run_worker.SHRED_STEPS:
                await asyncio.to_thread(kill, "shred", metadata_url, str(folder), step)
                report = await check(keyed.database, store, lambda _: None, clock=keyed.ctx.clock)
                assert report.violations == [], step
                assert await keyed.pull(digest_of(kept), "other") == (200, kept), step
                assert await keyed.database.read(keys_to_erase, "", 1), step
            await shred_deleted_keys(keyed.ctx)
            await collect(_with_grace(keyed, quarantine_seconds=0), store, keyed.account_id)
            report = await check(keyed.database, store, lambda _: None, clock=keyed.ctx.clock)
            assert (report.violations, report.orphans, report.unerased_count) == ([], [], 0)
            assert await keyed.pull(digest_of(kept), "other") == (200, kept)
            for content in lost:
                assert (await keyed.pull(digest_of(content)))[0] == 404
            assert len([found async for found in store.list_objects()]) == 1


async def fill_to_shred(keyed: KeyedRegistry, store: FilesystemStore) -> tuple[list[bytes], bytes]:
    """Delete the key of five blobs, of which one is in quarantine.

    Return them, and one that has another key too.
    """
    contents = [b"blob %d" % number for number in range(6)]
    await keyed.make_repository("app")
    key = await keyed.make_key("mine")
    await keyed.bind(key)
    for content in contents:
        target = f"/v2/dev/app/blobs/uploads/?digest={digest_of(content)}"
        assert (await keyed.client.request("POST", target, content)).status == 201
    kept, swept, *_ = contents
    target = f"/v2/dev/other/blobs/uploads/?mount={digest_of(kept)}&from=dev/app"
    assert (await keyed.client.request("POST", target)).status == 201
    gone = await keyed.client.request("DELETE", f"/v2/dev/app/blobs/{digest_of(swept)}")
    assert gone.status == 202
    await collect(_with_grace(keyed, quarantine_seconds=DAY), store, keyed.account_id)
    await keyed.kms.delete(key)
    return contents[1:], kept


def _with_grace(keyed: KeyedRegistry, quarantine_seconds: int) -> ServiceContext:
    """Return the surroundings of a collector that removes no link."""
    delays = Delays(
        gc_grace_seconds=DAY, gc_condemned_seconds=0, gc_quarantine_seconds=quarantine_seconds
    )
    return replace(keyed.ctx, delays=delays)

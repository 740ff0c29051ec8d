"""A deleted key takes what only it could open, and nothing else."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

import pytest
from sqlalchemy import select

from cloudcore.db.statement import Statement
from cloudcore.errors import Unavailable
from cloudcore.keyring import Keyring
from cloudcore.kms.providers import EmbeddedProvider
from cloudcore.kms.services import cancel_deletion, enable_key
from cloudcore.objects.damage import ABSENT
from registry.errors import BlobUnknown, KmsKeyDisabled
from registry.gc.data_keys import shred_deleted_keys
from registry.gc.fsck import FsckReport, check
from registry.gc.recovery import recover_blob
from registry.metadata.blobs.objects import BLOB_ROWS
from registry.metadata.control_tables import quarantined_objects
from registry.metadata.repositories.details import find_repository_details
from registry.metadata.tables import blob_objects
from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_MANIFEST
from registry.services.images.restoration import restore_images
from tests.collecting import at_once, collect
from tests.databases import on_both_databases
from tests.integration.sealed_world import SealedWorld, make_sealed_world
from tests.memory_store import MemoryStore
from tests.tenants import Install

DATA: Final = b"a layer of some hundred bytes. " * 100
CONFIG: Final = b'{"architecture": "amd64", "os": "linux"}'
DAY: Final = 24 * 3600


@pytest.fixture
async def world(install: Install) -> AsyncIterator[SealedWorld]:
    async with install.connect() as docker:
        yield await make_sealed_world(install, docker)


async def shred_image(world: SealedWorld) -> str:
    """Push an image whose blobs a key of its own seals, delete the key; return the digest."""
    key = await world.make_bound_key("mine", "red")
    digest = await push_image(world, "red", DATA)
    await world.delete(key)
    await shred(world)
    return digest


async def states(world: SealedWorld) -> list[tuple[Any, ...]]:
    """Return digest, state and stored size of all objects."""
    o = blob_objects.c
    statement = Statement(select(o.digest, o.state, o.stored_size).order_by(o.digest, o.id))
    rows = await world.install.database.read(lambda tx: tx.rows(statement))
    return [tuple(row) for row in rows]


async def states_of(world: SealedWorld) -> set[str]:
    return {row[1] for row in await states(world)}


async def delete_image(world: SealedWorld, digest: str) -> None:
    answer = await world.docker.delete(f"/v2/acme/red/manifests/{digest}")
    assert answer.status_code == 202


async def delete_blob(world: SealedWorld, repository: str) -> None:
    answer = await world.docker.delete(f"{world.blobs(repository)}/{digest_of(DATA)}")
    assert answer.status_code == 202


async def can_pull(world: SealedWorld, repository: str) -> bool:
    """Return True if the blob comes whole, False if it is unknown."""
    answer = await world.pull(repository, DATA)
    assert answer.status_code == 404 or answer.content == DATA
    return answer.status_code == 200


def stored(world: SealedWorld) -> set[str]:
    store = world.install.ctx.reader
    assert isinstance(store, MemoryStore)
    return set(store.files.objects)


async def shred(world: SealedWorld) -> int:
    return await shred_deleted_keys(world.install.ctx)


async def collected(world: SealedWorld) -> dict[str, Any]:
    """Run the collector without delays; return what it counted."""
    ctx = world.install.ctx
    store: Any = ctx.writer
    return dict((await collect(at_once(ctx), store, world.account.id)).counts)


async def fsck(world: SealedWorld) -> FsckReport:
    ctx = world.install.ctx
    store: Any = ctx.reader
    return await check(
        ctx.database, store, lambda _: None, clock=ctx.clock, data_keys=ctx.data_keys
    )


async def assert_sound(world: SealedWorld) -> None:
    """Check that store, database and keys agree in everything."""
    report = await fsck(world)
    assert (report.violations, report.orphans, report.unerased_count) == ([], [], 0)


async def push_image(world: SealedWorld, repository: str, *layers: bytes) -> str:
    """Push an image of these layers; return its digest."""
    described = []
    for blob in (CONFIG, *layers):
        assert (await world.push(repository, blob)).status_code == 201
        described.append(
            {"mediaType": "application/x", "digest": str(digest_of(blob)), "size": len(blob)}
        )
    fields = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": described[0]}
    manifest = json.dumps({**fields, "layers": described[1:]}).encode()
    path, kind = f"/v2/acme/{repository}/manifests/latest", {"content-type": OCI_MANIFEST}
    answer = await world.docker.put(path, content=manifest, headers=kind)
    assert answer.status_code == 201, answer.text
    return str(digest_of(manifest))


async def quarantined(world: SealedWorld) -> list[str]:
    statement = Statement(select(quarantined_objects.c.digest))
    return [row[0] for row in await world.install.database.read(lambda tx: tx.rows(statement))]


@on_both_databases
async def test_an_image_of_a_deleted_key_is_shredded(world: SealedWorld) -> None:
    key = await world.make_bound_key("mine", "red")
    digest = await push_image(world, "red", DATA)
    await world.delete(key)
    assert not await can_pull(world, "red")
    assert (await fsck(world)).unerased_count == 2
    assert await shred(world) == 2
    assert await shred(world) == 0
    assert {row[1:] for row in await states(world)} == {("shredded", 0)}
    assert not await can_pull(world, "red")
    assert (await world.pull("red", DATA, "HEAD")).status_code == 404
    await assert_sound(world)
    assert (await collected(world))["removed"] == 2
    assert stored(world) == set()
    await assert_sound(world)
    answer = await world.docker.get(f"/v2/acme/red/manifests/{digest}")
    assert answer.status_code == 200
    assert not await can_pull(world, "red")


async def test_a_shredded_blob_is_not_marked_as_damaged(world: SealedWorld) -> None:
    """The scrub may have begun to read it before."""
    database = world.install.database
    key = await world.make_bound_key("mine", "red")
    await push_image(world, "red", DATA)
    read = [row async for row in BLOB_ROWS.each(database)]
    assert len(read) == 2
    await world.delete(key)
    await shred(world)
    for row in read:
        assert not await database.read(BLOB_ROWS.is_unchanged, row)
        seen = row.account_id, row.stored_id, row.verified_at
        assert not await database.write(BLOB_ROWS.mark, *seen, ABSENT, 5)


async def test_other_keys_keep_their_blobs(world: SealedWorld) -> None:
    key = await world.make_bound_key("mine", "red")
    for repository in ("red", "blue"):
        await push_image(world, repository, DATA)
    await world.delete(key)
    await shred(world)
    for _ in range(2):
        assert not await can_pull(world, "red")
        assert await can_pull(world, "blue")
        assert await states_of(world) == {"live"}
        await assert_sound(world)
        await collected(world)


async def test_the_last_other_link_takes_the_bytes_along(world: SealedWorld) -> None:
    key = await world.make_bound_key("mine", "red")
    await push_image(world, "red", DATA)
    assert (await world.push("blue", DATA)).status_code == 201
    await world.delete(key)
    await shred(world)
    await delete_blob(world, "blue")
    await collected(world)
    assert stored(world) == set()
    assert await states_of(world) == {"shredded"}
    await assert_sound(world)


async def test_a_push_brings_a_shredded_blob_back(world: SealedWorld) -> None:
    await shred_image(world)
    await world.bind("red", None)
    await push_image(world, "red", DATA)
    assert await can_pull(world, "red")
    assert await states_of(world) == {"live"}
    await collected(world)
    assert await can_pull(world, "red")
    await assert_sound(world)


@on_both_databases
async def test_an_image_of_a_shredded_blob_is_deleted_and_restored(world: SealedWorld) -> None:
    digest = await shred_image(world)
    await delete_image(world, digest)
    await collected(world)
    assert await states_of(world) == {"shredded"}
    await assert_sound(world)
    await restore(world, "red", digest)
    assert (await world.docker.get(f"/v2/acme/red/manifests/{digest}")).status_code == 200
    assert not await can_pull(world, "red")
    await assert_sound(world)


async def test_a_restored_image_is_read_through_its_key(world: SealedWorld) -> None:
    await world.make_bound_key("mine", "red")
    digest = await push_image(world, "red", DATA)
    await delete_image(world, digest)
    await world.bind("red", None)
    await collected(world)
    await assert_sound(world)
    await restore(world, "red", digest)
    assert await can_pull(world, "red")
    await assert_sound(world)


@on_both_databases
async def test_a_restored_image_leaves_links_that_were_made_meanwhile(world: SealedWorld) -> None:
    old = await world.make_bound_key("mine", "red")
    digest = await push_image(world, "red", DATA)
    await delete_image(world, digest)
    await world.bind("red", None)
    assert (await world.push("red", DATA)).status_code == 201
    await assert_sound(world)
    object_id, kms_key_id = await world.link("red", DATA)
    await restore(world, "red", digest)
    assert await world.link("red", DATA) == (object_id, kms_key_id)
    assert old.id not in await world.wraps(object_id)
    await assert_sound(world)


async def test_a_key_deleted_in_the_undelete_period_shreds_what_it_held(
    world: SealedWorld,
) -> None:
    key = await world.make_bound_key("mine", "red")
    digest = await push_image(world, "red", DATA)
    await delete_image(world, digest)
    await collected(world)
    await world.delete(key)
    await shred(world)
    assert await states_of(world) == {"shredded"}
    await collected(world)
    assert stored(world) == set()
    await restore(world, "red", digest)
    assert (await world.docker.get(f"/v2/acme/red/manifests/{digest}")).status_code == 200
    await assert_sound(world)


async def test_a_key_that_comes_back_changes_nothing(world: SealedWorld) -> None:
    key = await world.make_bound_key("mine", "red")
    await push_image(world, "red", DATA)
    before = await states(world)
    await world.schedule_deletion(key)
    assert await shred(world) == 0
    assert (await world.pull("red", DATA)).status_code == 403
    kms = world.install.kms
    found = await kms.database.write(cancel_deletion, key, kms.clock())
    await kms.database.write(enable_key, found, kms.clock())
    assert await shred(world) == 0
    assert await states(world) == before
    assert await can_pull(world, "red")


async def test_bytes_in_quarantine_go_with_their_key(world: SealedWorld) -> None:
    key = await world.make_bound_key("mine", "red")
    await world.push("red", DATA)
    await sweep(world)
    assert await quarantined(world) == [str(digest_of(DATA))]
    await world.delete(key)
    await shred(world)
    with pytest.raises(BlobUnknown):
        await recover(world, "blue", DATA)
    store: Any = world.install.ctx.writer
    await collect(world.install.ctx, store, world.account.id)
    assert stored(world) == set()
    await assert_sound(world)


async def test_a_blob_is_recovered_under_the_key_of_its_repository(world: SealedWorld) -> None:
    """Once the provider of the key that it was sealed under is there."""
    await world.make_bound_key("mine", "red")
    await world.push("red", DATA)
    await sweep(world)
    away = world.with_providers(EmbeddedProvider(Keyring(b"another root key" * 2)))
    ctx = replace(world.install.ctx, data_keys=away)
    with pytest.raises(Unavailable, match="root key"):
        await recover_blob(ctx, world.account.id, world.ids["red"], str(digest_of(DATA)))
    await recover(world, "blue", DATA)
    platform = await world.platform_key()
    object_id, kms_key_id = await world.link("blue", DATA)
    assert kms_key_id == platform.id
    assert set(await world.wraps(object_id)) == {platform.id}
    assert await can_pull(world, "blue")
    assert await quarantined(world) == []
    await assert_sound(world)


async def test_a_blob_whose_key_is_disabled_is_recovered_under_that_key_alone(
    world: SealedWorld,
) -> None:
    key = await world.make_bound_key("mine", "red")
    await world.push("red", DATA)
    await sweep(world)
    await world.disable(key)
    for name in ("red", "blue"):
        with pytest.raises(KmsKeyDisabled):
            await recover(world, name, DATA)
    await world.enable(key)
    await recover(world, "red", DATA)
    assert await can_pull(world, "red")
    await assert_sound(world)


async def test_a_broken_wrap_is_not_linked_by_a_recovery(world: SealedWorld) -> None:
    platform = await world.platform_key()
    await world.push("red", DATA)
    object_id, _ = await world.link("red", DATA)
    await world.spoil(object_id, platform, b"\x00" * 64)
    await sweep(world)
    with pytest.raises(KmsKeyDisabled):
        await recover(world, "red", DATA)
    assert not await can_pull(world, "red")
    assert await world.objects(DATA) == []
    assert await quarantined(world) == [str(digest_of(DATA))]


async def test_recovery_links_whole_bytes_that_the_account_has_again(world: SealedWorld) -> None:
    await world.make_bound_key("mine", "red")
    await world.push("red", DATA)
    await sweep(world)
    await world.push("red", DATA)
    await recover(world, "blue", DATA)
    platform = await world.platform_key()
    object_id, _ = await world.link("red", DATA)
    assert await world.link("blue", DATA) == (object_id, platform.id)
    assert await can_pull(world, "blue")
    assert await quarantined(world) == [str(digest_of(DATA))]
    await assert_sound(world)


@on_both_databases
async def test_recovery_heals_damaged_bytes_for_all_their_keys(world: SealedWorld) -> None:
    await world.make_bound_key("mine", "red")
    await world.push("red", DATA)
    await sweep(world)
    await world.push("red", DATA)
    object_id, red = await world.link("red", DATA)
    ((_, stored_id, *_),) = await world.objects(DATA)
    database = world.install.database
    verified = Statement(select(blob_objects.c.verified_at))
    row = await database.read(lambda tx: tx.row(verified))
    assert row is not None
    assert await database.write(BLOB_ROWS.mark, world.account.id, stored_id, row[0], ABSENT, 5)
    await recover(world, "blue", DATA)
    platform = await world.platform_key()
    assert await world.link("red", DATA) == (object_id, red)
    assert await world.link("blue", DATA) == (object_id, platform.id)
    for name in ("red", "blue"):
        assert (await world.pull(name, DATA)).content == DATA
    await assert_sound(world)


async def test_a_collected_blob_that_is_pushed_under_another_key_has_that_key_alone(
    world: SealedWorld,
) -> None:
    await world.make_bound_key("mine", "red")
    await world.push("red", DATA)
    await delete_blob(world, "red")
    await world.push("blue", DATA)
    platform = await world.platform_key()
    object_id, _ = await world.link("blue", DATA)
    assert set(await world.wraps(object_id)) == {platform.id}
    await assert_sound(world)


async def test_progress_is_logged(world: SealedWorld, caplog: pytest.LogCaptureFixture) -> None:
    key = await world.make_bound_key("mine", "red")
    await push_image(world, "red", DATA)
    await push_image(world, "blue", CONFIG)
    await world.delete(key)
    with caplog.at_level(logging.INFO):
        await shred(world)
    (record,) = [each for each in caplog.records if key.id in each.getMessage()]
    assert "it had 2, of which 1 " in record.getMessage()


async def sweep(world: SealedWorld) -> None:
    """Unlink the blob of `red`, and move it to the quarantine."""
    await delete_blob(world, "red")
    ctx = at_once(world.install.ctx)
    waiting = replace(ctx, delays=replace(ctx.delays, gc_quarantine_seconds=3600))
    store: Any = ctx.writer
    await collect(waiting, store, world.account.id)


async def recover(world: SealedWorld, repository: str, data: bytes) -> None:
    ctx = world.install.ctx
    await recover_blob(ctx, world.account.id, world.ids[repository], str(digest_of(data)))


async def restore(world: SealedWorld, repository: str, digest: str) -> None:
    ctx = world.install.ctx
    record = await ctx.database.read(
        find_repository_details, world.account.id, world.ids[repository]
    )
    assert record is not None
    batch = await ctx.database.write(restore_images, record, [digest], ctx.change_by("someone"))
    assert batch.failures == []

"""The scrub finds every damaged byte, tells which images it hits, and goes on where it stopped."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from cloudcore.clock import MICROSECONDS
from registry.blobstore.backups import deletions_held
from registry.blobstore.disk.store import FilesystemStore
from registry.counters import SCRUBBED_BYTES, SCRUBBED_DAMAGED, SCRUBBED_OBJECTS
from registry.errors import StoreUnavailable
from registry.gc.database_rollback import accept_database
from registry.gc.object_check import Pace, ReadingStopped
from registry.gc.scrub import (
    ObjectScrub,
    ScrubReport,
    ScrubScope,
    scrub_all,
    scrub_chores,
    scrub_manifests,
)
from registry.metadata.collector import scrub
from registry.metadata.repositories.repository import find_repository
from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_MANIFEST
from registry.settings.groups import Scrubbing
from tests.databases import on_both_databases
from tests.inprocess import Registry, open_registry
from tests.integration.damaged import DAMAGES, file_of, flip, marked
from tests.integration.stored_forms import (
    CONFIG,
    SET_MANIFEST,
    Targets,
    damaged,
    manifest_body,
    push_blob,
    push_image,
)
from tests.soak import IS_SOAK, time_limit, times

DAY: Final = 24 * 3600
FAST: Final = Scrubbing(scrub_every_seconds=30 * DAY, scrub_rate_bytes=1 << 40)


@pytest.fixture
async def registry(metadata_url: str, store: FilesystemStore) -> AsyncIterator[Registry]:
    async with open_registry(metadata_url, store) as registry:
        yield registry


async def pull(registry: Registry, digest: str, repository: str = "app") -> tuple[int, bytes]:
    answer = await registry.client.request("GET", f"/v2/dev/{repository}/blobs/{digest}")
    return answer.status, answer.body


async def scrubbed(
    registry: Registry, store: FilesystemStore, scope: ScrubScope | None = None
) -> ScrubReport:
    ctx = registry.ctx
    scope = scope or ScrubScope()
    return await scrub_all(ctx.database, store, ctx.clock, scope, Pace(), lambda _: None)


@pytest.mark.parametrize("damage", list(DAMAGES))
async def test_a_damaged_blob_is_named_not_served_and_healed_by_a_push(
    registry: Registry, store: FilesystemStore, blobs: Path, damage: str
) -> None:
    layer = b"layer" * 100_000
    image = await push_image(registry, layer, "v1")
    assert await push_image(registry, layer, "latest") == image
    DAMAGES[damage](await file_of(registry, blobs, digest_of(layer)))
    report = await scrubbed(registry, store)
    (found,) = report.blobs
    assert (found.digest, found.is_new) == (digest_of(layer), True)
    assert [str(each) for each in found.images] == [f"dev/app@{image} (latest, v1)"]
    assert report.object_count == 2
    status, body = await pull(registry, digest_of(layer))
    assert status == 404
    assert f"the bytes of blob {digest_of(layer)} in dev/app are damaged; push them again" in (
        body.decode()
    )
    (again,) = (await scrubbed(registry, store)).blobs
    assert (again.digest, again.is_new) == (digest_of(layer), False)
    await push_image(registry, layer, "v2")
    assert await pull(registry, digest_of(layer)) == (200, layer)
    assert await marked(registry) == []
    assert (await scrubbed(registry, store)).blobs == []


async def test_an_index_tells_by_which_tags_its_children_are_pulled(
    registry: Registry, store: FilesystemStore, blobs: Path
) -> None:
    layer = b"layer" * 1000
    child = await push_image(registry, layer, "child")
    kind = "application/vnd.oci.image.index.v1+json"
    size = len(await manifest_body(registry, child))
    listed = [{"mediaType": OCI_MANIFEST, "digest": child, "size": size}]
    index = json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": listed}).encode()
    put = await registry.client.request(
        "PUT", "/v2/dev/app/manifests/all", index, {"content-type": kind}
    )
    assert put.status == 201
    flip(await file_of(registry, blobs, digest_of(layer)))
    ((image,),) = [found.images for found in (await scrubbed(registry, store)).blobs]
    assert image.tags == ["all", "child"]


@time_limit(60)
async def test_every_flipped_bit_and_every_cut_is_found(
    registry: Registry, store: FilesystemStore, blobs: Path
) -> None:
    chance = random.Random(None if IS_SOAK else 14)
    targets = Targets(registry, blobs)
    await targets.fill(chance, 100)
    wanted, done = times(1000), 0
    while done < wanted:
        hit = chance.sample(sorted(targets.writers), 60)
        for digest in hit:
            whole, overwrite = targets.writers[digest]
            await overwrite(damaged(whole, chance))
        report = await scrubbed(registry, store)
        found = {each.digest for each in report.blobs}
        assert found | {each.manifest.digest for each in report.manifests} == set(hit)
        done += len(hit)
        for digest in hit:
            whole, overwrite = targets.writers[digest]
            await overwrite(whole)
    last = await scrubbed(registry, store)
    assert (last.blobs, last.manifests) == ([], [])
    assert await marked(registry) == []
    assert done >= wanted


async def test_a_damaged_manifest_is_named_by_its_images(
    registry: Registry, store: FilesystemStore
) -> None:
    image = await push_image(registry, b"layer", "v1")
    assert await push_image(registry, b"layer", "v2", "other") == image
    write = registry.ctx.database.write
    await write(lambda tx: tx.execute(SET_MANIFEST, of=image, content=b"{}"))
    (found,) = (await scrubbed(registry, store)).manifests
    assert [str(each) for each in found.images] == [
        f"dev/app@{image} (v1)",
        f"dev/other@{image} (v2)",
    ]
    damage: list[str] = []
    ctx = replace(registry.ctx, on_damage=lambda: damage.append(image))
    assert await scrub_manifests(ctx, FAST) == 1
    assert await scrub_manifests(ctx, FAST) == 1
    assert damage == [image]  # told once
    await push_image(registry, b"layer", "v1")
    assert await scrub_manifests(ctx, FAST) == 0


async def test_a_scope_leaves_out_other_repositories_and_what_was_verified(
    registry: Registry, store: FilesystemStore, blobs: Path
) -> None:
    await push_image(registry, b"of app", "v1")
    await push_image(registry, b"of other", "v1", "other")
    for layer in (b"of app", b"of other"):
        flip(await file_of(registry, blobs, digest_of(layer)))
    other = await registry.ctx.database.read(find_repository, "dev", "other")
    assert other is not None
    report = await scrubbed(registry, store, ScrubScope([other.id]))
    assert [each.digest for each in report.blobs] == [digest_of(b"of other")]
    assert (report.object_count, report.manifest_count) == (2, 1)
    hour = 3600 * MICROSECONDS
    assert (await scrubbed(registry, store, ScrubScope(older_than=hour))).object_count == 0
    registry.clock.advance(3601)
    assert (await scrubbed(registry, store, ScrubScope(older_than=hour))).object_count == 3
    # The config was verified now; of the damaged ones that is not known.
    assert (await scrubbed(registry, store, ScrubScope(older_than=hour))).object_count == 2


class Counted:
    """A context that counts, and the turns of a scrub over it."""

    def __init__(self, registry: Registry, store: FilesystemStore, **options: object) -> None:
        self.counts: dict[str, int] = {}
        self.damage = 0
        self.ctx = replace(registry.ctx, count=self._count, on_damage=self._note)
        self.scrub = ObjectScrub(self.ctx, store, FAST, **options)  # type: ignore[arg-type]

    def _count(self, key: str, amount: int) -> None:
        self.counts[key] = self.counts.get(key, 0) + amount

    def _note(self) -> None:
        self.damage += 1


@on_both_databases
async def test_in_the_background_every_blob_is_read_once_in_a_period(
    registry: Registry, store: FilesystemStore, blobs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    early = await push_image(registry, b"layer" * 1000, "early")
    registry.clock.advance(20 * DAY)
    await push_blob(registry, b"late")
    counted = Counted(registry, store)
    assert await counted.scrub.turn() == 0
    registry.clock.advance(11 * DAY)
    flip(await file_of(registry, blobs, digest_of(b"layer" * 1000)))
    flip(await file_of(registry, blobs, digest_of(b"late")))
    assert await counted.scrub.turn() == 2
    assert counted.counts == {
        SCRUBBED_OBJECTS: 2,
        SCRUBBED_BYTES: len(CONFIG) + 5000,
        SCRUBBED_DAMAGED: 1,
    }
    assert counted.damage == 1
    assert f"image dev/app@{early} (early) needs the damaged blob" in caplog.text
    assert await counted.scrub.turn() == 0  # a marked blob waits for its push
    assert [each for each, _ in await marked(registry)] == [digest_of(b"layer" * 1000)]
    registry.clock.advance(20 * DAY)
    assert await counted.scrub.turn() == 1
    assert len(await marked(registry)) == 2
    registry.clock.advance(DAY)
    oldest = await registry.ctx.database.read(scrub.oldest_verified_at)
    assert oldest is not None
    assert registry.clock.now - oldest >= 21 * DAY * MICROSECONDS  # the config


async def test_beside_a_database_that_went_back_no_blob_is_verified(
    registry: Registry, store: FilesystemStore, caplog: pytest.LogCaptureFixture
) -> None:
    await push_blob(registry, b"a blob")
    registry.clock.advance(31 * DAY)
    await store.save_generation(registry.ctx.new_id())
    counted = Counted(registry, store)
    assert await counted.scrub.turn() == 0
    assert "no blob is verified: the database is older than the blobs" in caplog.text
    await accept_database(registry.ctx, store)
    assert await counted.scrub.turn() == 1


async def test_a_turn_ends_after_some_time_and_the_next_goes_on(
    registry: Registry, store: FilesystemStore, blobs: Path
) -> None:
    for number in range(5):
        await push_blob(registry, b"%d" % number)
    registry.clock.advance(31 * DAY)
    times = iter(range(0, 100_000, 250))
    counted = Counted(registry, store, monotonic=lambda: float(next(times)))
    with deletions_held(blobs):  # it makes way for a backup
        assert await counted.scrub.turn() == 0
    assert [await counted.scrub.turn() for _ in range(3)] == [2, 2, 1]
    assert len(scrub_chores(registry.ctx, store, FAST)) == 2
    assert scrub_chores(registry.ctx, store, Scrubbing(scrub_rate_bytes=0)) == ()


async def test_a_stopped_turn_has_recorded_what_it_read(
    registry: Registry, store: FilesystemStore
) -> None:
    await push_blob(registry, b"first")
    await push_blob(registry, b"second" * 1_000_000)
    registry.clock.advance(31 * DAY)
    is_waiting = threading.Event()

    def wait(stopped: threading.Event, seconds: float) -> bool:
        """Wait for the second blob until the turn is stopped."""
        if seconds < 0.001:
            return False
        is_waiting.set()
        return stopped.wait(60)

    paces = [Pace(1_000_000, wait=wait), Pace()]
    counted = Counted(registry, store, new_pace=lambda _: paces.pop(0))
    turn = asyncio.create_task(counted.scrub.turn())
    await asyncio.to_thread(is_waiting.wait)
    turn.cancel()
    with suppress(asyncio.CancelledError, ReadingStopped):
        await turn
    assert turn.cancelled()
    assert await counted.scrub.turn() == 1


async def test_blobs_that_are_all_damaged_look_like_an_unmounted_disk(
    registry: Registry, store: FilesystemStore, blobs: Path
) -> None:
    for number in range(25):
        (await file_of(registry, blobs, await push_blob(registry, b"%d" % number))).unlink()
    registry.clock.advance(31 * DAY)
    counted = Counted(registry, store)
    with pytest.raises(StoreUnavailable, match="is the disk of the blobs mounted"):
        await counted.scrub.turn()
    assert len(await marked(registry)) == 20


def test_a_pace_spreads_the_reading_over_all_threads() -> None:
    now = [100.0]
    waits: list[float] = []

    def wait(_: threading.Event, seconds: float) -> bool:
        waits.append(round(seconds, 3))
        return False

    pace = Pace(1000, monotonic=lambda: now[0], wait=wait)
    pace.spend(500)
    pace.spend(250)  # of another thread, at the same moment
    now[0] += 10
    pace.spend(100)  # a pause is not made up for
    assert waits == [0.5, 0.75, 0.1]
    pace.stop()
    with pytest.raises(ReadingStopped):
        pace.spend(0)

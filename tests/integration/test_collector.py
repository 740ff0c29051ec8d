"""The collector on both databases: what goes, when it goes, and what never does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
from sqlalchemy import bindparam, text

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.jobs.runs import Run
from cloudcore.objects.damage import ABSENT
from registry.blobstore.disk.store import FilesystemStore
from registry.blobstore.sealed.frame_format import sealed_size
from registry.gc.collection import collection_kind
from registry.gc.fsck import check
from registry.gc.manifest_check import IndexIncomplete
from registry.gc.purge import purge_tombstones
from registry.gc.recovery import recover_blob
from registry.metadata.blobs.objects import BLOB_ROWS, linked_object
from registry.metadata.tables import manifest_blobs, repository_blobs
from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_MANIFEST
from registry.services.collector_runs import start_due_collections
from registry.services.context import ServiceContext
from registry.settings.groups import Delays
from tests.collecting import at_once, collect
from tests.databases import on_both_databases
from tests.integration.pushing import CONFIG_TYPE, World
from tests.jobs import run_due

pytestmark = on_both_databases

SEALED_BYTES: Final = sealed_size(8)
HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
_UNREFERENCE: Final = Statement(
    repository_blobs.update()
    .where(repository_blobs.c.repository_id == bindparam("repository_id"))
    .values(manifest_refs=text("0"))
)
_CUT_EDGES: Final = Statement(
    manifest_blobs.delete().where(manifest_blobs.c.repository_id == bindparam("repository"))
)


class Yard:
    """A world, and its collector."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ctx: ServiceContext = world.install.ctx
        store: Any = self.ctx.writer
        self.store: FilesystemStore = store

    async def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        await self.world.pass_seconds(seconds)

    async def collect(self, ctx: ServiceContext | None = None) -> Run:
        """Run the collector over the account."""
        return await collect(ctx or self.ctx, self.store, self.world.account.id)

    async def collect_at_once(self) -> Run:
        """Run the collector with no delay at all."""
        return await self.collect(at_once(self.ctx))

    async def has(self, digest: str) -> bool:
        """Say whether the data plane serves a blob."""
        answer = await self.world.docker.get(f"/v2/{self.world.name}/blobs/{digest}")
        assert answer.status_code in (200, 404)
        return answer.status_code == 200

    async def head(self, digest: str) -> int:
        """Ask for a blob as a push does, and return the status."""
        answer = await self.world.docker.head(f"/v2/{self.world.name}/blobs/{digest}")
        return answer.status_code

    async def status(self) -> dict[str, Any]:
        """Return what waits to be collected."""
        answer = await self.world.control.get("/v1/garbage-collection")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()["garbage_collection"]
        return found

    async def start(self) -> dict[str, Any]:
        """Ask for a run, or join one."""
        answer = await self.world.control.post("/v1/garbage-collection/runs")
        assert answer.status_code == 202, answer.text
        found: dict[str, Any] = answer.json()["run"]
        return found

    async def run(self, run_id: str) -> dict[str, Any]:
        """Return a run as the control plane shows it."""
        answer = await self.world.control.get(f"/v1/garbage-collection/runs/{run_id}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()["run"]
        return found

    async def work(self) -> None:
        """Let a worker carry out the runs there are."""
        kind = collection_kind(self.ctx, self.store)
        await run_due(self.ctx.database, [kind], self.ctx.clock)

    def objects(self) -> int:
        """Return how many objects the store holds."""
        return len(list(self.store.files.list_objects()))

    async def check(self) -> None:
        """Run fsck; everything must be well, and nothing leak."""
        report = await check(self.ctx.database, self.store, lambda _: None, clock=self.ctx.clock)
        assert report.violations == []
        assert report.orphans == []


async def test_bytes_go_stage_by_stage(world: World) -> None:
    yard = Yard(world)
    digest = (await world.push_blob(b"nobody's"))["digest"]
    found = await yard.status()
    assert (found["unreferenced_blobs"], found["unreferenced_bytes"]) == (1, 8)
    assert (found["grace_seconds"], found["status"]) == (86400, "idle")
    assert found["last_run"] is None
    assert await start_due_collections(yard.ctx) == 0

    await yard.pass_time(DAY - 60)
    assert (await yard.collect()).counts["unlinked"] == 0
    assert await yard.has(digest)
    await yard.pass_time(61)
    done = await yard.collect()
    assert (done.counts["unlinked"], done.counts["condemned"], done.counts["swept"]) == (
        1,
        1,
        0,
    )
    assert not await yard.has(digest)
    assert (await yard.status())["condemned_bytes"] == SEALED_BYTES

    await yard.pass_time(901)
    done = await yard.collect()
    assert (done.counts["swept"], done.counts["removed"], yard.objects()) == (1, 0, 1)
    assert (await yard.status())["quarantined_bytes"] == SEALED_BYTES
    await yard.check()

    await yard.pass_time(HOUR + 1)
    done = await yard.collect()
    freed = done.counts["removed"], done.counts["freed_bytes"]
    assert (*freed, yard.objects()) == (1, SEALED_BYTES, 0)
    found = await yard.status()
    stages = ("unreferenced", "condemned", "quarantined")
    assert [found[f"{stage}_blobs"] for stage in stages] == [0, 0, 0]
    assert found["last_run"]["freed_bytes"] == SEALED_BYTES
    await yard.check()


async def test_what_a_manifest_or_a_tombstone_needs_stays(world: World) -> None:
    yard = Yard(world)
    layer = "kept"
    image = await world.push_image(layer, "v1")
    await yard.collect_at_once()
    assert await world.pulls("v1")
    assert yard.objects() == 2
    assert (await world.control.delete(f"{world.images}/{image['digest']}")).status_code == 204
    done = await yard.collect_at_once()
    assert (done.counts["unlinked"], done.counts["condemned"]) == (2, 0)
    assert yard.objects() == 2
    batch = {"digests": [image["digest"]]}
    answer = await world.control.post(f"{world.images}/restore", json=batch)
    assert answer.status_code == 200, answer.text
    done = await yard.collect_at_once()
    assert (done.counts["unlinked"], yard.objects()) == (0, 2)
    assert await world.pulls("v1")

    assert (await world.control.delete(f"{world.images}/{image['digest']}")).status_code == 204
    await yard.pass_time(8 * DAY)
    assert await purge_tombstones(yard.ctx) == 1
    done = await yard.collect_at_once()
    assert (done.counts["removed"], yard.objects()) == (2, 0)
    await yard.check()


async def test_a_deleted_image_leaves_its_blobs_their_grace(world: World) -> None:
    """Who was told of a blob while a manifest had it can still push with it."""

    yard = Yard(world)
    document = await world.image_document("layer")
    image = await world.push(document, "v1")
    await yard.pass_time(30 * DAY)
    digest = document["layers"][0]["digest"]
    assert await yard.head(digest) == 200
    assert (await world.control.delete(f"{world.images}/{image['digest']}")).status_code == 204
    assert (await yard.collect()).counts["unlinked"] == 0
    await world.push(document, "v2")
    await yard.collect_at_once()
    assert await world.pulls("v2")


async def test_what_only_a_replaced_tombstone_held_goes(world: World) -> None:
    """A foreign layer may be there at one push of an image, and not be at the next."""

    yard = Yard(world)
    foreign = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"
    document = await world.image_document("layer")
    layer = await world.push_blob(b"foreign", foreign)
    document["layers"].append({**layer, "urls": ["https://elsewhere.example/layer"]})
    for _ in range(2):
        image = await world.push(document, "v1")
        path = f"{world.images}/{image['digest']}"
        assert (await world.control.delete(path)).status_code == 204
        await yard.collect_at_once()
        await world.push_blob(b"{}", CONFIG_TYPE)
        await world.push_blob(b"layer")
    await yard.collect_at_once()
    assert yard.objects() == 2
    await yard.check()


async def test_a_head_renews_the_grace(world: World) -> None:
    yard = Yard(world)
    document = await world.image_document("layer")
    await yard.pass_time(DAY - 60)
    for blob in (document["config"], *document["layers"]):
        assert await yard.head(blob["digest"]) == 200
    await yard.pass_time(DAY - 60)
    assert (await yard.collect()).counts["unlinked"] == 0
    await world.push(document, "v1")


async def test_a_push_takes_condemned_bytes_back(world: World) -> None:
    yard = Yard(world)
    digest = (await world.push_blob(b"twice"))["digest"]
    await yard.pass_time(DAY + 1)
    assert (await yard.collect()).counts["condemned"] == 1
    await world.push_blob(b"twice")
    assert yard.objects() == 1  # the same object as before
    await yard.pass_time(HOUR)
    done = await yard.collect()
    assert (done.counts["swept"], done.counts["kept"]) == (0, 0)
    assert await yard.has(digest)


async def test_a_push_after_the_sweep_stores_anew(world: World) -> None:
    yard = Yard(world)
    digest = (await world.push_blob(b"twice"))["digest"]
    await yard.pass_time(DAY + 1)
    await yard.collect()
    await yard.pass_time(901)
    assert (await yard.collect()).counts["swept"] == 1
    assert await yard.head(digest) == 404
    await world.push_blob(b"twice")
    assert yard.objects() == 2
    await yard.check()
    await yard.pass_time(HOUR + 1)
    assert (await yard.collect()).counts["removed"] == 1
    assert await yard.has(digest)
    await yard.check()


async def test_a_blob_of_another_repository_stays(world: World) -> None:
    yard = Yard(world)
    other = await world.another("other")
    await world.push_image("shared", "v1")
    await other.push_image("shared")
    digest = (await other.push_blob(b"mine"))["digest"]
    path = f"/v2/{other.name}/blobs/{digest}"
    assert (await other.docker.delete(path)).status_code == 202
    done = await yard.collect_at_once()
    assert (done.counts["unlinked"], done.counts["swept"], done.counts["removed"]) == (0, 1, 1)
    assert await world.pulls("v1")
    await yard.check()


async def test_a_swept_blob_can_be_recovered(world: World) -> None:
    yard = Yard(world)
    digest = (await world.push_blob(b"missed"))["digest"]
    await yard.pass_time(DAY + 1)
    await yard.collect()
    await yard.pass_time(901)
    await yard.collect()
    assert not await yard.has(digest)
    await recover_blob(yard.ctx, world.account.id, world.repository_id, digest)
    assert await yard.has(digest)
    assert (await yard.status())["quarantined_blobs"] == 0
    await yard.pass_time(HOUR + 1)
    assert (await yard.collect()).counts["removed"] == 0
    assert await yard.has(digest)
    await yard.check()


async def test_a_recovered_blob_heals_the_damaged_one_that_was_pushed_since(world: World) -> None:
    yard = Yard(world)
    digest = (await world.push_blob(b"missed"))["digest"]
    await yard.pass_time(DAY + 1)
    await yard.collect()
    await yard.pass_time(901)
    await yard.collect()
    await world.push_blob(b"missed")

    def damage(tx: Connection) -> None:
        found = linked_object(tx, world.repository_id, digest)
        assert found is not None
        assert BLOB_ROWS.mark(tx, world.account.id, found.id, found.verified_at, ABSENT, 1)
        yard.store.files.delete(found.id)

    await yard.ctx.database.write(damage)
    assert not await yard.has(digest)
    await recover_blob(yard.ctx, world.account.id, world.repository_id, digest)
    assert await yard.has(digest)
    assert (await yard.status())["quarantined_blobs"] == 1  # the damaged bytes
    await yard.check()


@pytest.mark.parametrize("lost", [0, 1])
async def test_the_whole_one_of_two_swept_blobs_is_recovered(world: World, lost: int) -> None:
    """The same bytes were pushed and swept twice; one of the files was lost since."""

    yard = Yard(world)
    delays = Delays(gc_grace_seconds=0, gc_condemned_seconds=0)
    swept: list[str] = []
    for _ in range(2):
        digest = (await world.push_blob(b"missed"))["digest"]
        await yard.collect(replace(yard.ctx, delays=delays))
        swept += {found.object_id for found in yard.store.files.list_objects()}.difference(swept)
    assert (await yard.status())["quarantined_blobs"] == 2
    yard.store.files.delete(swept[lost])
    await recover_blob(yard.ctx, world.account.id, world.repository_id, digest)
    assert await yard.has(digest)
    await yard.pass_time(HOUR + 1)
    await yard.collect()
    assert await yard.has(digest)
    assert (await yard.status())["quarantined_blobs"] == 0
    await yard.check()


async def test_lost_counts_stop_the_collector(world: World) -> None:
    """Where the edges say a blob is used, a count of 0 takes nothing."""

    yard = Yard(world)
    await world.push_image("layer", "v1")

    def lose(tx: Connection) -> None:
        tx.execute(_UNREFERENCE, repository_id=world.repository_id)

    await yard.ctx.database.write(lose)
    with pytest.raises(IndexIncomplete, match="reference count is 0"):
        await yard.collect_at_once()
    assert yard.objects() == 2
    assert await world.pulls("v1")


async def test_lost_edges_stop_the_collector(world: World) -> None:
    """Where the manifests say a blob is used, lost edges and counts take nothing."""

    yard = Yard(world)
    image = await world.push_image("layer", "v1")

    def lose(tx: Connection) -> None:
        tx.execute(_CUT_EDGES, repository=world.repository_id)
        tx.execute(_UNREFERENCE, repository_id=world.repository_id)

    await yard.ctx.database.write(lose)
    with pytest.raises(IndexIncomplete, match=image["digest"]):
        await yard.collect_at_once()
    assert yard.objects() == 2


async def test_a_blob_under_two_names_is_no_loss(world: World) -> None:
    """A manifest may list one blob by digests of two algorithms; it holds it once."""

    yard = Yard(world)
    data = b"{}"
    config = await world.push_blob(data, CONFIG_TYPE)
    alias = digest_of(data, "sha512")
    path = f"/v2/{world.name}/blobs/uploads/?digest={alias}"
    assert (await world.docker.post(path, content=data)).status_code == 201
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": config,
        "layers": [{**config, "digest": str(alias)}],
    }
    await world.push(document, "v1")
    await world.push_blob(b"garbage")
    assert (await yard.collect_at_once()).counts["removed"] == 1
    assert await world.pulls("v1")
    await yard.check()


async def test_the_worker_runs_what_is_due(world: World) -> None:
    """By the clock and by hand; a run is joined, recorded, and tells why it failed."""

    yard = Yard(world)
    await world.push_blob(b"garbage")
    await yard.pass_time(DAY + 1)
    assert await start_due_collections(yard.ctx) == 1
    assert await start_due_collections(yard.ctx) == 0  # it is under way
    joined = await yard.start()
    assert (joined["status"], joined["started_by"]) == ("running", None)
    assert (await yard.status())["status"] == "running"
    await yard.work()
    found = await yard.run(joined["id"])
    assert (found["status"], found["unlinked"], found["condemned"]) == ("succeeded", 1, 1)

    image = await world.push_image("layer", "v1")

    def lose(tx: Connection) -> None:
        tx.execute(_UNREFERENCE, repository_id=world.repository_id)

    await yard.ctx.database.write(lose)
    await yard.pass_time(DAY + 1)
    started = await yard.start()
    await yard.work()
    found = await yard.run(started["id"])
    assert found["status"] == "failed"
    assert found["fault"].startswith("INDEX_INCOMPLETE: ")
    assert found["started_by"]
    assert await world.pulls(image["digest"])
    runs = (await world.control.get("/v1/garbage-collection/runs")).json()
    assert [each["id"] for each in runs["runs"]] == [started["id"], joined["id"]]
    assert runs["meta"]["total"] == 2

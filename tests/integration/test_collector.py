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

    async def shown(self, path: str = "", *, starts: bool = False) -> dict[str, Any]:
        """Return what waits to be collected, or the run at a path; or start a run, or join one."""
        method, status = ("POST", 202) if starts else ("GET", 200)
        answer = await self.world.control.request(method, f"/v1/garbage-collection{path}")
        assert answer.status_code == status, answer.text
        (found,) = answer.json().values()
        return dict(found)

    async def swept(self, data: bytes) -> str:
        """Push a blob and let it be swept; return its digest."""
        digest: str = (await self.world.push_blob(data))["digest"]
        await self.pass_time(DAY + 1)
        assert (await self.collect()).counts["condemned"] == 1
        await self.pass_time(901)
        assert (await self.collect()).counts["swept"] == 1
        return digest

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


def unreference(tx: Connection, repository_id: str) -> None:
    """Let the blobs of a repository count as used by no manifest."""
    tx.execute(_UNREFERENCE, repository_id=repository_id)


@pytest.fixture
def yard(world: World) -> Yard:
    return Yard(world)


@on_both_databases
async def test_bytes_go_stage_by_stage(world: World, yard: Yard) -> None:
    digest = (await world.push_blob(b"nobody's"))["digest"]
    found = await yard.shown()
    assert (found["unreferenced_blobs"], found["unreferenced_bytes"]) == (1, 8)
    assert (found["grace_seconds"], found["status"]) == (86400, "idle")
    assert found["last_run"] is None
    assert await start_due_collections(yard.ctx) == 0

    await yard.pass_time(DAY - 60)
    assert (await yard.collect()).counts["unlinked"] == 0
    assert await yard.has(digest)
    await yard.pass_time(61)
    done = await yard.collect()
    assert [done.counts[each] for each in ("unlinked", "condemned", "swept")] == [1, 1, 0]
    assert not await yard.has(digest)
    assert (await yard.shown())["condemned_bytes"] == SEALED_BYTES

    await yard.pass_time(901)
    done = await yard.collect()
    assert (done.counts["swept"], done.counts["removed"], yard.objects()) == (1, 0, 1)
    assert (await yard.shown())["quarantined_bytes"] == SEALED_BYTES
    await yard.check()

    await yard.pass_time(HOUR + 1)
    done = await yard.collect()
    freed = done.counts["removed"], done.counts["freed_bytes"]
    assert (*freed, yard.objects()) == (1, SEALED_BYTES, 0)
    found = await yard.shown()
    stages = ("unreferenced", "condemned", "quarantined")
    assert [found[f"{stage}_blobs"] for stage in stages] == [0, 0, 0]
    assert found["last_run"]["freed_bytes"] == SEALED_BYTES
    await yard.check()


@on_both_databases
async def test_what_a_manifest_or_a_tombstone_needs_stays(world: World, yard: Yard) -> None:
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


async def test_a_deleted_image_leaves_its_blobs_their_grace(world: World, yard: Yard) -> None:
    """Who was told of a blob while a manifest had it can still push with it."""
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


async def test_what_only_a_replaced_tombstone_held_goes(world: World, yard: Yard) -> None:
    """A foreign layer may be there at one push of an image, and not be at the next."""
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


@on_both_databases
async def test_a_head_renews_the_grace(world: World, yard: Yard) -> None:
    document = await world.image_document("layer")
    await yard.pass_time(DAY - 60)
    for blob in (document["config"], *document["layers"]):
        assert await yard.head(blob["digest"]) == 200
    await yard.pass_time(DAY - 60)
    assert (await yard.collect()).counts["unlinked"] == 0
    await world.push(document, "v1")


@on_both_databases
async def test_a_push_takes_condemned_bytes_back(world: World, yard: Yard) -> None:
    digest = (await world.push_blob(b"twice"))["digest"]
    await yard.pass_time(DAY + 1)
    assert (await yard.collect()).counts["condemned"] == 1
    await world.push_blob(b"twice")
    assert yard.objects() == 1  # the same object as before
    await yard.pass_time(HOUR)
    done = await yard.collect()
    assert (done.counts["swept"], done.counts["kept"]) == (0, 0)
    assert await yard.has(digest)


async def test_a_push_after_the_sweep_stores_anew(world: World, yard: Yard) -> None:
    digest = await yard.swept(b"twice")
    assert await yard.head(digest) == 404
    await world.push_blob(b"twice")
    assert yard.objects() == 2
    await yard.check()
    await yard.pass_time(HOUR + 1)
    assert (await yard.collect()).counts["removed"] == 1
    assert await yard.has(digest)
    await yard.check()


async def test_a_blob_of_another_repository_stays(world: World, yard: Yard) -> None:
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


@on_both_databases
async def test_a_swept_blob_can_be_recovered(world: World, yard: Yard) -> None:
    digest = await yard.swept(b"missed")
    assert not await yard.has(digest)
    await recover_blob(yard.ctx, world.account.id, world.repository_id, digest)
    assert await yard.has(digest)
    assert (await yard.shown())["quarantined_blobs"] == 0
    await yard.pass_time(HOUR + 1)
    assert (await yard.collect()).counts["removed"] == 0
    assert await yard.has(digest)
    await yard.check()


async def test_a_recovered_blob_heals_the_damaged_one_that_was_pushed_since(
    world: World, yard: Yard
) -> None:
    digest = await yard.swept(b"missed")
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
    assert (await yard.shown())["quarantined_blobs"] == 1  # the damaged bytes
    await yard.check()


@pytest.mark.parametrize("lost", [0, 1])
async def test_the_whole_one_of_two_swept_blobs_is_recovered(
    world: World, yard: Yard, lost: int
) -> None:
    """The same bytes were pushed and swept twice; one of the files was lost since."""
    delays = Delays(gc_grace_seconds=0, gc_condemned_seconds=0)
    swept: list[str] = []
    for _ in range(2):
        digest = (await world.push_blob(b"missed"))["digest"]
        await yard.collect(replace(yard.ctx, delays=delays))
        swept += {found.object_id for found in yard.store.files.list_objects()}.difference(swept)
    assert (await yard.shown())["quarantined_blobs"] == 2
    yard.store.files.delete(swept[lost])
    await recover_blob(yard.ctx, world.account.id, world.repository_id, digest)
    assert await yard.has(digest)
    await yard.pass_time(HOUR + 1)
    await yard.collect()
    assert await yard.has(digest)
    assert (await yard.shown())["quarantined_blobs"] == 0
    await yard.check()


@on_both_databases
@pytest.mark.parametrize("lost", ["counts", "counts and edges"])
async def test_what_is_lost_of_the_index_stops_the_collector(
    world: World, yard: Yard, lost: str
) -> None:
    """It takes nothing that the edges or the manifests say is used, whatever the counts say."""
    image = await world.push_image("layer", "v1")
    await yard.ctx.database.write(unreference, world.repository_id)
    if lost == "counts":
        reason = "reference count is 0"
    else:
        reason = image["digest"]
        await yard.ctx.database.write(
            lambda tx: tx.execute(_CUT_EDGES, repository=world.repository_id)
        )
    with pytest.raises(IndexIncomplete, match=reason):
        await yard.collect_at_once()
    assert yard.objects() == 2
    assert await world.pulls("v1")


async def test_a_blob_under_two_names_is_no_loss(world: World, yard: Yard) -> None:
    """A manifest may list one blob by digests of two algorithms; it holds it once."""
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


@on_both_databases
async def test_the_worker_runs_what_is_due(world: World, yard: Yard) -> None:
    """By the clock and by hand; a run is joined, recorded, and tells why it failed."""
    await world.push_blob(b"garbage")
    await yard.pass_time(DAY + 1)
    assert await start_due_collections(yard.ctx) == 1
    assert await start_due_collections(yard.ctx) == 0  # it is under way
    joined = await yard.shown("/runs", starts=True)
    assert (joined["status"], joined["started_by"]) == ("running", None)
    assert (await yard.shown())["status"] == "running"
    await yard.work()
    found = await yard.shown(f"/runs/{joined['id']}")
    assert (found["status"], found["unlinked"], found["condemned"]) == ("succeeded", 1, 1)

    image = await world.push_image("layer", "v1")
    await yard.ctx.database.write(unreference, world.repository_id)
    await yard.pass_time(DAY + 1)
    started = await yard.shown("/runs", starts=True)
    await yard.work()
    found = await yard.shown(f"/runs/{started['id']}")
    assert found["status"] == "failed"
    assert found["fault"].startswith("INDEX_INCOMPLETE: ")
    assert found["started_by"]
    assert await world.pulls(image["digest"])
    runs = (await world.control.get("/v1/garbage-collection/runs")).json()
    assert [each["id"] for each in runs["runs"]] == [started["id"], joined["id"]]
    assert runs["meta"]["total"] == 2

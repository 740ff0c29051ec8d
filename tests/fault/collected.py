"""A registry with something in every stage of the collector, and what must be left of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import aclosing
from typing import Final

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection
from cloudcore.jobs.runs import end_run
from cloudcore.quotas.limits import put_limit
from registry.blobstore.store import BlobStore
from registry.gc.collection import phases_of
from registry.gc.fsck import check
from registry.gc.orphans import places_of, set_orphans_aside
from registry.metadata.blobs.inline import inline_objects
from registry.metadata.repositories.repository import find_repository, lock_repository
from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_MANIFEST
from registry.quotas import BLOB_BYTES
from registry.services.changes import Change
from registry.services.collector_runs import start_collection
from registry.services.images.restoration import restore_image
from tests.collecting import at_once, collect
from tests.inprocess import Registry

CONFIG: Final = b"{}"
KEPT: Final = b"a layer that an image has " * 9
DELETED: Final = b"a layer that a deleted image has " * 9
GARBAGE: Final = (b"swept", b"condemned", b"unreferenced")
MARK, SWEEP = 1, 2


def document(layer: bytes) -> bytes:
    """Return the manifest of an image with one layer."""
    kinds = (("config", CONFIG), ("layer", layer))
    config, layers = (
        {"mediaType": f"application/x-{kind}", "digest": digest_of(data), "size": len(data)}
        for kind, data in kinds
    )
    return json.dumps({"schemaVersion": 2, "config": config, "layers": [layers]}).encode()


async def push_blob(registry: Registry, data: bytes) -> None:
    """Push a blob in one request."""
    path = f"/v2/dev/app/blobs/uploads/?digest={digest_of(data)}"
    assert (await registry.client.request("POST", path, data)).status == 201


async def push_image(registry: Registry, layer: bytes) -> None:
    """Push an image of one layer."""
    for data in (CONFIG, layer):
        await push_blob(registry, data)
    body = document(layer)
    path = f"/v2/dev/app/manifests/{digest_of(body)}"
    kind = {"content-type": OCI_MANIFEST}
    assert (await registry.client.request("PUT", path, body, kind)).status == 201


async def fill(registry: Registry, store: BlobStore) -> None:
    """Push, delete and collect until every stage holds something; and leave orphans.

    The account's bytes are counted.
    """
    limit = await registry.account_id(), BLOB_BYTES.name, 1 << 40, 1
    await registry.ctx.database.write(put_limit, *limit)
    await push_image(registry, KEPT)
    await push_image(registry, DELETED)
    path = f"/v2/dev/app/manifests/{digest_of(document(DELETED))}"
    assert (await registry.client.request("DELETE", path)).status == 202
    phases: Sequence[Sequence[int]] = ((MARK, SWEEP), (MARK,), ())
    for data, numbers in zip(GARBAGE, phases, strict=True):
        await push_blob(registry, data)
        await run_phases(registry, store, numbers)
    for is_object in (True, False):
        async with aclosing(await store.stage(uuid7(registry.clock()), None)) as staged:
            staged.write(memoryview(b"nobody's"))
            if is_object:
                staged.commit(digest_of(b"nobody's"))
    registry.clock.advance(2 * 3600)


async def run_phases(registry: Registry, store: BlobStore, numbers: Sequence[int]) -> None:
    """Run some phases of the collector, with no delay."""
    ctx, account_id = at_once(registry.ctx), await registry.account_id()
    run = await ctx.database.write(start_collection, account_id, ctx.new_id(), ctx.change_by(""))
    for number in numbers:
        await phases_of(store)[number](ctx, run)
    await ctx.database.write(end_run, run.id, ctx.clock())


async def clean(registry: Registry, store: BlobStore) -> None:
    """Run the collector once, with no delay, and look for orphans."""
    ctx = at_once(registry.ctx)
    await collect(ctx, store, await registry.account_id())
    for place in places_of(store):
        await set_orphans_aside(ctx, store, place)


async def check_needed(registry: Registry, store: BlobStore) -> None:
    """Check that nothing needed is lost, whatever else is there."""
    report = await check(registry.ctx.database, store, lambda _: None, clock=registry.clock)
    assert report.violations == []
    await check_image(registry, KEPT)


async def check_image(registry: Registry, layer: bytes) -> None:
    """Pull an image whole."""
    ask, body = registry.client.request, document(layer)
    assert (await ask("GET", f"/v2/dev/app/manifests/{digest_of(body)}")).body == body
    for data in (CONFIG, layer):
        assert (await ask("GET", f"/v2/dev/app/blobs/{digest_of(data)}")).body == data


async def check_clean(registry: Registry, store: BlobStore) -> None:
    """Check that what is needed is there, and nothing else."""
    await check_needed(registry, store)
    report = await check(registry.ctx.database, store, lambda _: None, clock=registry.clock)
    assert report.orphans == []
    inline = await registry.ctx.database.read(inline_objects, "", 9)
    files = [each async for each in store.list_objects()]
    assert len(files) + len(inline) == 3  # a config and two layers
    assert [each async for each in store.list_staged()] == []
    await registry.ctx.database.write(_restore, registry.ctx.change_by(""))
    await check_image(registry, DELETED)
    await check_needed(registry, store)


def _restore(tx: Connection, change: Change) -> None:
    repository = find_repository(tx, "dev", "app")
    assert repository is not None
    assert lock_repository(tx, repository.id) is not None
    restore_image(tx, repository, str(digest_of(document(DELETED))), change)

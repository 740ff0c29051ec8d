"""Repositories of the pull-through cache whose rule was deleted: pulled from, and pushed to."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Final

import pytest
from sqlalchemy import text

from cloudcore.db.statement import Statement
from cloudcore.errors import Conflict
from registry.errors import RepositoryMirrored
from registry.metadata.pull_through.cache_rule import CacheRule
from registry.metadata.pull_through.rules import find_rule_for
from registry.metadata.repositories.details import RepositoryDetails, find_repository_details
from registry.metadata.repositories.repository import find_repository
from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_INDEX, OCI_MANIFEST
from registry.services.images.restoration import (
    restore_images,
    restore_repository,
    restore_tag,
)
from registry.services.pull_through import fetched_manifests
from registry.services.pull_through.rules import create_rule
from registry.services.repositories.details import delete_repository
from tests.databases import on_both_databases
from tests.inprocess import Answer
from tests.integration.mirror_world import APP, HANDLE, NAME, TTL, CachedWorld
from tests.manifest_upstream import CONFIG_TYPE, described

LAYER: Final = b"the layer"
ANOTHER: Final = b"another"
IMAGE: Final = json.dumps(
    {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": described(b"{}", CONFIG_TYPE),
        "layers": [described(ANOTHER)],
    }
).encode()
_DELETE: Final = Statement(text("DELETE FROM pull_through_cache_rules"))


async def leave_behind(cached: CachedWorld) -> CacheRule:
    """Delete the rule, and return it."""
    rule = await cached.ctx.database.read(find_rule_for, HANDLE, NAME.repository)
    assert rule is not None
    await cached.ctx.database.write(lambda tx: tx.execute(_DELETE))
    return rule


async def push(
    cached: CachedWorld, reference: str, body: bytes, kind: str = OCI_MANIFEST
) -> Answer:
    return await cached.ask("PUT", f"manifests/{reference}", body, {"content-type": kind})


async def push_image(cached: CachedWorld, tag: str) -> None:
    """Push `IMAGE`, with its blobs."""
    for data in (b"{}", ANOTHER):
        answer = await cached.ask("POST", f"blobs/uploads/?digest={digest_of(data)}", data)
        assert answer.status == 201
    assert (await push(cached, tag, IMAGE)).status == 201


async def delete(cached: CachedWorld, reference: str) -> None:
    assert (await cached.ask("DELETE", f"manifests/{reference}")).status == 202


async def repository_record(cached: CachedWorld) -> RepositoryDetails:
    """Return the cached repository as `/v1` has it."""
    repository = await cached.ctx.database.read(find_repository, HANDLE, NAME.repository)
    assert repository is not None
    of = (repository.account_id, repository.id)
    found = await cached.ctx.database.read(find_repository_details, *of)
    assert found is not None
    return found


@on_both_databases
async def test_images_are_pushed_beside_those_that_are_there(cached: CachedWorld) -> None:
    cached.upstream.add_image(APP, "v1", layers=(LAYER,))
    await cached.pull("v1")
    rule = await leave_behind(cached)
    cached.clock.advance(TTL)
    assert (await cached.pull("v1")).status == 200
    await cached.ctx.database.write(create_rule, rule)  # it takes over what is there
    await leave_behind(cached)

    assert (await push(cached, "v2", IMAGE)).codes == ["MANIFEST_BLOB_UNKNOWN"] * 2
    await push_image(cached, "v2")
    await push_image(cached, "v1")
    cached.clock.advance(TTL)
    assert (await cached.pull("v1")).body == IMAGE
    with pytest.raises(Conflict, match="hub/team/app"):
        await cached.ctx.database.write(create_rule, rule)
    await cached.check()


@pytest.mark.parametrize("is_there", [True, False])
async def test_what_comes_late_from_upstream_moves_no_pushed_tag(
    cached: CachedWorld, *, is_there: bool
) -> None:
    cached.upstream.add_image(APP, "v0", layers=(LAYER,))
    cached.upstream.add_image(APP, "v1", layers=(LAYER,))
    await cached.pull("v1" if is_there else "v0")
    cached.upstream.add_image(APP, "v1", layers=(b"a newer layer",))
    cached.clock.advance(TTL)
    cached.upstream.was_asked.clear()
    cached.upstream.go_on.clear()
    late = asyncio.create_task(cached.pull("v1"))
    await cached.upstream.was_asked.wait()
    await leave_behind(cached)
    await push_image(cached, "v1")
    cached.upstream.go_on.set()
    assert (await late).status == (200 if is_there else 404)
    assert (await cached.pull("v1")).body == IMAGE
    fresh = "SELECT fresh_until FROM tags WHERE name = 'v1'"
    assert cached.rows(fresh) == [(None,)], "it is nobody's but those who push"
    await cached.check()


async def test_a_rule_that_goes_before_its_upstream_is_asked_fetches_nothing(
    cached: CachedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = await cached.ctx.database.read(find_rule_for, HANDLE, NAME.repository)
    await leave_behind(cached)
    monkeypatch.setattr(fetched_manifests, "find_rule_for", lambda *_: rule)  # as it was read
    assert (await cached.pull("v1")).codes == ["NAME_UNKNOWN"]
    assert cached.upstream.asked == []


async def test_a_pushed_blob_stays_for_the_cached_image_that_lacked_it(cached: CachedWorld) -> None:
    """A client finds the manifests there, and pushes only the blobs."""
    child = cached.upstream.add_image(APP, layers=(LAYER,))
    other = cached.upstream.add_image(APP, layers=(b"of another platform",))
    cached.upstream.add_index(APP, "v1", of=(child, other))
    index = (await cached.pull("v1")).body
    await cached.pull(child)
    await leave_behind(cached)
    for data in (b"{}", LAYER):
        await cached.ask("POST", f"blobs/uploads/?digest={digest_of(data)}", data)
    assert (await push(cached, "v2", index, OCI_INDEX)).status == 201
    await cached.collect()
    assert (await cached.ask("GET", f"blobs/{digest_of(LAYER)}")).body == LAYER
    await cached.check()


@on_both_databases
async def test_restored_tags_are_nobodys_but_those_who_push(cached: CachedWorld) -> None:
    """A new rule over them would delete them: its upstream does not have them."""
    cached.upstream.add_image(APP, "v1", layers=(LAYER,))
    await cached.pull("v1")
    rule = await leave_behind(cached)
    database, own = cached.ctx.database, await repository_record(cached)
    for tag in ("mine", "ours"):
        await push_image(cached, tag)
    change = cached.ctx.change_by("")
    await delete(cached, "mine")
    await database.write(restore_tag, own, "mine", change)
    await delete(cached, digest_of(IMAGE))
    batch = await database.write(restore_images, own, [str(digest_of(IMAGE))], change)
    assert [sorted(each.tags) for each in batch.restored] == [["mine", "ours"]]

    for tag in ("mine", "ours"):
        with pytest.raises(Conflict, match="hub/team/app"):
            await database.write(create_rule, rule)
        await delete(cached, tag)
    await database.write(create_rule, rule)
    await database.write(restore_tag, own, "mine", change)
    assert (await cached.pull("mine")).status == 404, "names of a rule mean what they do upstream"
    await cached.check()


@on_both_databases
async def test_a_repository_with_a_pushed_tag_is_not_restored_under_a_rule(
    cached: CachedWorld,
) -> None:
    cached.upstream.add_image(APP, "v1", layers=(LAYER,))
    await cached.pull("v1")
    rule = await leave_behind(cached)
    await push_image(cached, "mine")
    database, own = cached.ctx.database, await repository_record(cached)
    account_id = rule.account_id

    async def delete_all() -> None:
        change = cached.ctx.change_by("")
        await database.write(partial(delete_repository, force=True), account_id, own.id, change)

    async def restore() -> None:
        change = cached.ctx.change_by("")
        await database.write(restore_repository, account_id, own.id, change)

    await delete_all()
    await database.write(create_rule, rule)
    with pytest.raises(RepositoryMirrored, match="hub/"):
        await restore()
    await leave_behind(cached)
    await restore()
    assert (await cached.pull("mine")).body == IMAGE

    await delete(cached, "mine")
    await delete_all()
    await database.write(create_rule, rule)
    await restore()
    assert (await cached.pull("v1")).status == 200
    await cached.check()

"""Cached images that are not whole: their references come with what they list, and all counts."""

from __future__ import annotations

import asyncio

from registry.metadata.repositories.details import find_repository_details
from registry.metadata.repositories.repository import find_account, find_repository
from registry.oci.digest import digest_of
from registry.services.images.restoration import restore_images
from registry.services.pull_through.references import size_in_manifests
from tests.databases import on_both_databases
from tests.integration.mirror_world import APP, HANDLE, NAME, CachedWorld

ONE, TWO, CONFIG = b"one" * 100, b"two" * 200, b"{}"
SIZES = "SELECT digest, size_bytes FROM manifests"
EDGES = "SELECT digest FROM manifest_blobs"


async def test_an_image_has_its_size_before_its_blobs(cached: CachedWorld) -> None:
    digest = cached.upstream.add_image(APP, "v1", layers=(ONE, TWO))
    await cached.pull("v1")
    await cached.check()
    whole = len(ONE) + len(TWO) + len(CONFIG)
    assert cached.rows(SIZES) == [(digest, whole)]
    assert cached.rows("SELECT size_bytes FROM repositories") == [(0,)]
    repository = await cached.ctx.database.read(find_repository, HANDLE, NAME.repository)
    assert repository is not None
    database, of = cached.ctx.database, (repository.id, str(digest_of(TWO)))
    assert await database.read(size_in_manifests, *of) == len(TWO)
    await cached.fill(TWO)
    assert await database.read(size_in_manifests, *of) is None
    assert cached.rows(EDGES) == [(str(digest_of(TWO)),)]
    assert cached.rows("SELECT size_bytes FROM repositories") == [(len(TWO),)]
    assert cached.rows(SIZES) == [(digest, whole)]
    await cached.check()
    await cached.fill(TWO, ONE, CONFIG)
    assert cached.rows("SELECT size_bytes FROM repositories") == [(whole,)]
    assert cached.rows("SELECT count(*) FROM missing_blobs") == [(0,)]
    await cached.check()


@on_both_databases
async def test_the_collector_keeps_the_blobs_of_sparse_images_and_no_others(
    cached: CachedWorld,
) -> None:
    cached.upstream.add_image(APP, "v1", layers=(ONE, TWO))
    await cached.pull("v1")
    await cached.fill(ONE, b"of no image")
    cached.clock.advance(60)
    await cached.collect()
    assert cached.rows("SELECT digest FROM repository_blobs") == [(str(digest_of(ONE)),)]
    await cached.check()


@on_both_databases
async def test_a_blob_completes_all_images_that_list_it(cached: CachedWorld) -> None:
    for tag in ("v1", "v2"):
        cached.upstream.add_image(APP, tag, layers=(ONE,), annotations={"tag": tag})
        await cached.pull(tag)
    await cached.fill(ONE)
    assert cached.rows("SELECT manifest_refs FROM repository_blobs") == [(2,)]
    cached.upstream.add_image(APP, "v3", layers=(ONE,), annotations={"tag": "v3"})
    await cached.pull("v3")
    assert cached.rows("SELECT manifest_refs FROM repository_blobs") == [(3,)]
    await cached.check()


async def test_a_listed_size_that_was_wrong_is_corrected(cached: CachedWorld) -> None:
    cached.upstream.add(
        APP,
        {
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"mediaType": "a/b", "digest": str(digest_of(CONFIG)), "size": 2},
            "layers": [{"mediaType": "a/b", "digest": str(digest_of(ONE)), "size": 1}],
        },
        "v1",
    )
    await cached.pull("v1")
    await cached.fill(ONE)
    assert cached.rows("SELECT size_bytes FROM manifests") == [(len(ONE) + 2,)]


async def test_an_index_is_completed_platform_by_platform(cached: CachedWorld) -> None:
    amd = cached.upstream.add_image(APP, layers=(ONE,))
    arm = cached.upstream.add_image(APP, layers=(TWO,))
    index = cached.upstream.add_index(APP, "v1", of=(amd, arm))
    await cached.pull("v1")
    await cached.check()
    missing = "SELECT child_digest FROM manifest_children WHERE child_id IS NULL"
    assert sorted(cached.rows(missing)) == sorted([(amd,), (arm,)])
    assert dict(cached.rows(SIZES)) == {index: 0}
    await cached.pull(amd)
    assert cached.rows(missing) == [(arm,)]
    one = len(ONE) + len(CONFIG)
    assert dict(cached.rows(SIZES)) == {index: one, amd: one}
    await cached.fill(ONE, CONFIG)
    await cached.check()
    await cached.collect()
    await cached.check()
    assert len(cached.rows("SELECT digest FROM repository_blobs")) == 2
    await cached.pull(arm)
    assert dict(cached.rows(SIZES))[index] == one + len(TWO)
    refused = await cached.ask("DELETE", f"manifests/{amd}")
    assert refused.status == 405
    assert (await cached.ask("DELETE", f"manifests/{index}")).status == 202
    await cached.check()


async def test_an_index_of_indexes_grows_with_the_images_below(cached: CachedWorld) -> None:
    image = cached.upstream.add_image(APP, layers=(ONE,))
    inner = cached.upstream.add_index(APP, of=(image,))
    outer = cached.upstream.add_index(APP, "v1", of=(inner,))
    for reference in ("v1", inner, image):
        await cached.pull(reference)
    sizes = dict(cached.rows(SIZES))
    assert sizes == dict.fromkeys((outer, inner, image), len(ONE) + len(CONFIG))
    await cached.check()


@on_both_databases
async def test_a_deleted_sparse_image_is_restored_as_it_was(cached: CachedWorld) -> None:
    amd = cached.upstream.add_image(APP, layers=(ONE, TWO))
    arm = cached.upstream.add_image(APP, layers=(TWO,))
    index = cached.upstream.add_index(APP, "v1", of=(amd, arm))
    for reference in ("v1", amd):
        await cached.pull(reference)
    await cached.fill(ONE)
    for reference in (index, amd):
        assert (await cached.ask("DELETE", f"manifests/{reference}")).status == 202
        await cached.check()
    await cached.fill(TWO)
    await cached.pull(arm)
    await restore(cached, index)
    await cached.check()
    edges = "SELECT child_digest, child_id IS NULL FROM manifest_children"
    assert sorted((digest, bool(absent)) for digest, absent in cached.rows(edges)) == sorted(
        [(amd, False), (arm, False)]
    )
    held = {(digest,) for digest in (str(digest_of(ONE)), str(digest_of(TWO)))}
    assert set(cached.rows(EDGES)) == held
    assert cached.rows("SELECT DISTINCT digest FROM missing_blobs") == [(str(digest_of(CONFIG)),)]
    await cached.fill(CONFIG)
    assert cached.rows("SELECT count(*) FROM missing_blobs") == [(0,)]
    await cached.check()
    await cached.collect()
    await cached.check()
    assert len(cached.rows("SELECT digest FROM repository_blobs")) == 3


async def test_what_was_cached_again_meanwhile_has_the_restored_child(cached: CachedWorld) -> None:
    """The index is cached anew while its child is deleted; restoring the child completes it."""
    amd = cached.upstream.add_image(APP, layers=(ONE,))
    index = cached.upstream.add_index(APP, "v1", of=(amd,))
    for reference in ("v1", amd):
        await cached.pull(reference)
    for reference in (index, amd):
        await cached.ask("DELETE", f"manifests/{reference}")
    await cached.pull("v1")
    await restore(cached, amd)
    absent = "SELECT count(*) FROM manifest_children WHERE child_id IS NULL"
    assert cached.rows(absent) == [(0,)]
    await cached.check()


async def restore(cached: CachedWorld, digest: str) -> None:
    database = cached.ctx.database
    account = await database.read(find_account, HANDLE)
    repository = await database.read(find_repository, HANDLE, NAME.repository)
    assert account is not None
    assert repository is not None
    record = await database.read(find_repository_details, account.id, repository.id)
    assert record is not None
    batch = await database.write(restore_images, record, [digest], cached.ctx.change_by(""))
    assert batch.failures == []


@on_both_databases
async def test_blobs_that_come_at_the_same_moment_are_referenced(cached: CachedWorld) -> None:
    """The lock of the repository lets either see the other, in whichever order they commit."""
    blobs = [f"layer {number}".encode() for number in range(20)]
    for number, blob in enumerate(blobs):
        cached.upstream.add_image(APP, f"v{number}", layers=(blob, blobs[0]))
    await cached.fill(CONFIG)
    await asyncio.gather(
        *(cached.pull(f"v{number}") for number in range(20)), *map(cached.fill, blobs)
    )
    assert cached.rows("SELECT count(*) FROM missing_blobs") == [(0,)]
    await cached.check()
    cached.clock.advance(60)
    await cached.collect()
    assert len(cached.rows("SELECT digest FROM repository_blobs")) == 21

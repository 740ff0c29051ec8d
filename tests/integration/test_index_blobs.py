"""Indexes that list blobs, as build caches and checkpoints do: kept, counted and restored."""

from __future__ import annotations

import json

import pytest

from registry.oci.digest import digest_of
from registry.oci.media_types import DOCKER_MANIFEST_LIST, OCI_INDEX, OCI_MANIFEST
from tests.databases import on_both_databases
from tests.integration.counted_images import check, collect_at_once, size_of
from tests.integration.mirror_world import open_cached
from tests.integration.pushing import CONFIG_TYPE, LAYER_TYPE, World, refused

pytestmark = on_both_databases

CACHE_CONFIG = "application/vnd.buildkit.cacheconfig.v0"
SHARED = "layer of image and index"


async def get_blob(world: World, digest: str) -> int:
    """Ask for a blob and return the status."""
    return (await world.docker.get(f"/v2/{world.name}/blobs/{digest}")).status_code


@pytest.mark.parametrize("index_type", [OCI_INDEX, DOCKER_MANIFEST_LIST])
async def test_the_blobs_of_an_index_live_and_go_with_it(
    world: World, database_url: str, index_type: str
) -> None:
    layer = await world.push_blob(b"layer bytes" * 9)
    config = await world.push_blob(b'{"layers":[]}', CACHE_CONFIG)
    document = {"schemaVersion": 2, "mediaType": index_type, "manifests": [layer, config]}
    index = await world.push(document, "cache")
    assert await size_of(world, index) == layer["size"] + config["size"]
    assert (await world.record())["size_bytes"] == layer["size"] + config["size"]
    storage = (await world.get(f"/images/{index['digest']}/storage"))["storage"]
    assert storage["exclusive_bytes"] == storage["freed_bytes"] == layer["size"] + config["size"]
    await collect_at_once(world)
    await check(world, database_url)
    path = f"/v2/{world.name}/blobs/{layer['digest']}"
    assert (await world.docker.delete(path)).status_code == 405

    assert (await world.control.delete(f"{world.images}/{index['digest']}")).status_code == 204
    await collect_at_once(world)
    assert await get_blob(world, layer["digest"]) == 404
    await check(world, database_url)
    restored = await world.control.post(
        f"{world.images}/restore", json={"digests": [index["digest"]]}
    )
    assert restored.json()["restored"] == [{"digest": index["digest"], "tags": ["cache"]}]
    assert await get_blob(world, layer["digest"]) == 200
    assert (await world.record())["size_bytes"] == layer["size"] + config["size"]
    await check(world, database_url)


async def test_what_an_index_and_its_image_share_counts_once(
    world: World, database_url: str
) -> None:
    image = await world.push_image(SHARED)
    shared = await world.push_blob(SHARED.encode())
    own = await world.push_blob(b"of the index alone")
    index = await world.push_index([image, shared, own], "mixed")
    outer = await world.push_index([index], "outer")
    whole = await size_of(world, image) + own["size"]
    assert await size_of(world, index) == await size_of(world, outer) == whole
    assert (await world.record())["size_bytes"] == whole
    await check(world, database_url)
    await world.control.delete(f"{world.images}/{outer['digest']}")
    await world.control.delete(f"{world.images}/{index['digest']}")
    assert (await world.record())["size_bytes"] == await size_of(world, image)
    await check(world, database_url)


async def test_a_digest_that_names_a_manifest_and_a_blob_is_the_manifest(
    world: World, database_url: str
) -> None:
    image = await world.push_image("both")
    body = (await world.docker.get(f"/v2/{world.name}/manifests/{image['digest']}")).content
    blob = await world.push_blob(body)
    assert blob["digest"] == image["digest"]
    index = await world.push_index([blob], "both")  # with the media type of a layer
    refused(await world.control.delete(f"{world.images}/{image['digest']}"), 409, "CONFLICT")
    path = f"/v2/{world.name}/blobs/{blob['digest']}"
    assert (await world.docker.delete(path)).status_code == 202
    assert await size_of(world, index) == await size_of(world, image)
    await check(world, database_url)


async def test_two_names_of_one_entry_are_one_edge(world: World, database_url: str) -> None:
    """The collector compares edges with what is listed: it must not take this for a loss."""
    document = await world.image_document("layer")
    body = json.dumps(document).encode()
    sha512 = str(digest_of(body, "sha512"))
    image = await world.push(document, reference=sha512)
    await world.push_index([image, {**image, "digest": sha512}], "twice")
    await collect_at_once(world)
    await check(world, database_url)


async def test_a_cached_index_gets_its_blobs_on_demand(metadata_url: str) -> None:
    layer, config = b"cached layer" * 9, b'{"layers":[]}'
    listed = [
        {"mediaType": media_type, "digest": str(digest_of(data)), "size": len(data)}
        for media_type, data in ((LAYER_TYPE, layer), (CONFIG_TYPE, config))
    ]
    async with open_cached(metadata_url) as cached:
        image = cached.upstream.add_image("team/app", layers=(layer,))
        size = len(cached.upstream.manifests["team/app", image])
        child = {"mediaType": OCI_MANIFEST, "digest": image, "size": size}
        document = {"mediaType": OCI_INDEX, "manifests": [*listed, child]}
        index = cached.upstream.add("team/app", document, "cache")
        assert (await cached.pull("cache")).status == 200
        sizes = "SELECT size_bytes FROM manifests WHERE digest = ?"
        whole = len(layer) + len(config)
        assert cached.rows(sizes, index) == [(whole,)]
        await cached.check()
        await cached.fill(layer)
        await cached.collect()
        await cached.check()
        assert cached.rows("SELECT digest, manifest_refs FROM repository_blobs") == [
            (str(digest_of(layer)), 1)
        ]
        await cached.fill(config)
        await cached.pull(image)
        assert cached.rows("SELECT size_bytes FROM repositories") == [(whole,)]
        await cached.check()

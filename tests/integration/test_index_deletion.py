"""The blobs that an index lists, and its deletion with the images that nothing else needs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from registry.oci.digest import digest_of
from registry.oci.media_types import DOCKER_MANIFEST_LIST, OCI_INDEX, OCI_MANIFEST
from registry.services.images import index_deletion
from tests.databases import on_both_databases
from tests.integration.counted_images import check, collect_at_once, size_of
from tests.integration.mirror_world import open_cached
from tests.integration.pushing import CONFIG_TYPE, LAYER_TYPE, Descriptor, World, refused, signed_in
from tests.tenants import ALLOW_ALL, let

CACHE_CONFIG = "application/vnd.buildkit.cacheconfig.v0"
SHARED = "layer of image and index"


async def get_blob(world: World, digest: str) -> int:
    """Ask for a blob and return the status."""
    return (await world.docker.get(f"/v2/{world.name}/blobs/{digest}")).status_code


@pytest.mark.parametrize(
    ("database_url", "index_type"),
    [
        ("sqlite", OCI_INDEX),
        ("sqlite", DOCKER_MANIFEST_LIST),
        pytest.param("postgresql", OCI_INDEX, marks=pytest.mark.postgresql),
    ],
    indirect=["database_url"],
)
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
    back = {"digests": [index["digest"]]}
    restored = await world.control.post(f"{world.images}/restore", json=back)
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
    world: World, sqlite_database: str
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
    await check(world, sqlite_database)


async def test_two_names_of_one_entry_are_one_edge(world: World, sqlite_database: str) -> None:
    """The collector compares edges with what is listed: it must not take this for a loss."""
    document = await world.image_document("layer")
    body = json.dumps(document).encode()
    sha512 = str(digest_of(body, "sha512"))
    image = await world.push(document, reference=sha512)
    await world.push_index([image, {**image, "digest": sha512}], "twice")
    await collect_at_once(world)
    await check(world, sqlite_database)


@on_both_databases
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


async def preview_of(world: World, image: Descriptor) -> dict[str, Any]:
    return dict((await world.get(f"/images/{image['digest']}/deletion-preview"))["deletion"])


async def delete(
    world: World, image: Descriptor, body: dict[str, Any] | None = None, **query: str
) -> dict[str, Any]:
    path = f"{world.images}/{image['digest']}/delete-with-children"
    answer = await world.control.post(path, json=body or {}, params=query)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def digests(rows: list[dict[str, Any]]) -> list[str]:
    return [row["digest"] for row in rows]


def reasons(preview: dict[str, Any]) -> dict[str, str]:
    return {each["image"]["digest"]: each["reason"] for each in preview["kept"]}


async def here(world: World) -> set[str]:
    return set(digests((await world.get("/images", limit=200))["images"]))


async def attach(world: World, subject: Descriptor, **fields: str) -> Descriptor:
    about = {key: subject[key] for key in ("mediaType", "digest", "size")} | fields
    return await world.push_image(f"about {subject['digest']}", subject=about)


@on_both_databases
async def test_the_preview_is_what_the_deletion_does(world: World) -> None:
    free, leaf, tagged, pinned, signed, shared = [
        await world.push_image(name) for name in ("free", "leaf", "t", "p", "s", "o")
    ]
    await world.control.put(f"{world.path}/tags/kept", json={"digest": tagged["digest"]})
    await world.control.put(f"{world.images}/{pinned['digest']}/pins/prod", json={})
    attestation = await attach(world, free)  # is listed itself, so it goes with what it is about
    signature = await attach(world, signed)
    nested = await world.push_index([leaf])
    other = await world.push_index([shared])
    children = [free, attestation, nested, tagged, pinned, signed, shared]
    index = await world.push_index(children, "all")

    preview = await preview_of(world, index)
    going = digests(preview["deleted"])
    assert going[0] == index["digest"]
    assert going.index(nested["digest"]) < going.index(leaf["digest"])
    assert set(going) == {each["digest"] for each in (index, nested, leaf, free, attestation)}
    assert reasons(preview) == {
        tagged["digest"]: "tagged",
        pinned["digest"]: "pinned",
        signed["digest"]: "attached",
        shared["digest"]: "listed",
    }
    assert preview["listed_by"] == []
    storage = (await world.get(f"/images/{index['digest']}/storage"))["storage"]
    assert storage["unused_digests"] == going[1:]
    assert storage["exclusive_bytes"] == preview["freed_bytes"] > 0

    before = (await world.get("/storage"))["storage"]["size_bytes"]
    done = await delete(world, index)
    assert set(digests(done["deleted"])) == set(going)
    assert done["failures"] == []
    assert {each["digest"]: each["reason"] for each in done["kept"]} == reasons(preview)
    staying = (tagged, pinned, signed, shared, signature, other)
    assert await here(world) == {each["digest"] for each in staying}
    after = (await world.get("/storage"))["storage"]["size_bytes"]
    assert before - after == preview["freed_bytes"]


async def test_a_referrer_that_names_its_subject_by_sha512_keeps_it(world: World) -> None:
    document = await world.image_document("layer")
    sha512 = str(digest_of(json.dumps(document).encode(), "sha512"))
    image = await world.push(document, reference=sha512)
    await attach(world, image, digest=sha512)
    index = await world.push_index([image])
    assert reasons(await preview_of(world, index)) == {image["digest"]: "attached"}


async def test_no_child_goes_but_those_that_are_named(world: World) -> None:
    first, second = await world.push_image("first"), await world.push_image("second")
    late = await world.push_image("late")
    index = await world.push_index([first, second, late])
    await world.control.put(f"{world.path}/tags/late", json={"digest": late["digest"]})
    named = [first["digest"], late["digest"], f"sha256:{'0' * 64}"]
    done = await delete(world, index, {"digests": named})
    assert digests(done["deleted"]) == [index["digest"], first["digest"]]
    assert done["kept"] == [{"digest": late["digest"], "reason": "tagged"}]
    assert await here(world) == {second["digest"], late["digest"]}


async def test_a_pinned_index_stays_whole_unless_it_is_forced(world: World) -> None:
    child = await world.push_image("child")
    index = await world.push_index([child])
    await world.control.put(f"{world.images}/{index['digest']}/pins/prod", json={})
    done = await delete(world, index)
    assert done["deleted"] == []
    failures = {each["digest"]: each for each in done["failures"]}
    assert failures[index["digest"]]["params"] == {"pins": ["prod"]}
    assert failures[child["digest"]]["params"] == {"parents": [index["digest"]]}
    assert await here(world) == {index["digest"], child["digest"]}
    done = await delete(world, index, force="true")
    assert digests(done["deleted"]) == [index["digest"], child["digest"]]


async def test_an_index_that_another_lists_cannot_go(world: World) -> None:
    inner = await world.push_index([await world.push_image("leaf")])
    outer = await world.push_index([inner])
    assert (await preview_of(world, inner))["listed_by"] == [outer["digest"]]
    done = await delete(world, inner)
    assert done["deleted"] == []
    assert {each["code"] for each in done["failures"]} == {"CONFLICT"}
    assert len(digests((await preview_of(world, outer))["deleted"])) == 3


async def test_an_image_has_a_preview_but_no_children(world: World) -> None:
    image = await world.push_image("one", "v1")
    preview = await preview_of(world, image)
    assert (digests(preview["deleted"]), preview["kept"]) == ([image["digest"]], [])
    path = f"{world.images}/{image['digest']}/delete-with-children"
    refused(await world.control.post(path, json={}), 409, "CONFLICT")
    assert await world.pulls("v1")


async def test_too_many_children_are_refused_alike(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    children = [await world.push_image(name) for name in "abc"]
    index = await world.push_index(children)
    monkeypatch.setattr(index_deletion, "MAX_MEMBERS", 3)
    path = f"{world.images}/{index['digest']}"
    refused(await world.control.get(f"{path}/deletion-preview"), 409, "CONFLICT")
    refused(await world.control.post(f"{path}/delete-with-children", json={}), 409, "CONFLICT")
    monkeypatch.setattr(index_deletion, "MAX_MEMBERS", 4)
    assert len((await delete(world, index))["deleted"]) == 4


async def test_a_partner_learns_nothing_of_what_an_image_shares(world: World) -> None:
    index = await world.push_index([await world.push_image("child")])
    partner = await world.install.add_account("partner")
    program = await world.install.add_program(partner, "ci", ALLOW_ALL)
    seen = let("partner", actions=["registry:DescribeImages"])
    await world.install.share(world.repository_id, world.account, seen)
    client = signed_in(world.install, program)
    path = f"{world.images}/{index['digest']}"
    assert (await client.get(path)).status_code == 200
    refused(await client.get(f"{path}/deletion-preview"), 404, "NOT_FOUND")
    answer = await client.post(f"{path}/delete-with-children", json={})
    refused(answer, 404, "NOT_FOUND")

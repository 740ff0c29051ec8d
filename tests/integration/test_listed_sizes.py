"""Sizes that an upstream's manifests list, and nobody has checked."""

from __future__ import annotations

from typing import Any, Final

from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_MANIFEST
from tests.databases import on_both_databases
from tests.integration.mirror_world import APP, CachedWorld, open_cached
from tests.manifest_upstream import CONFIG_TYPE, LAYER_TYPE, described

TIB: Final = 2**40


def image(world: CachedWorld, tag: str, *layers: tuple[bytes, int]) -> str:
    """Let the upstream have an image that lists these layers with these sizes."""
    listed: list[dict[str, Any]] = [
        {"mediaType": LAYER_TYPE, "digest": str(digest_of(data)), "size": size}
        for data, size in layers
    ]
    config = described(b"{}", CONFIG_TYPE)
    document = {"mediaType": OCI_MANIFEST, "config": config, "layers": listed}
    return world.upstream.add(APP, document, tag)


@on_both_databases
async def test_a_size_that_no_blob_has_is_no_manifest(metadata_url: str) -> None:
    async with open_cached(metadata_url) as world:
        for number, size in enumerate((TIB + 1, 2**62, 2**63 - 1)):
            image(world, f"v{number}", (b"1", size), (b"2", size))
            answer = await world.pull(f"v{number}")
            assert (answer.status, b"upstream registry" in answer.body) == (503, True), size
        assert world.rows("SELECT count(*) FROM manifests") == [(0,)]


@on_both_databases
async def test_the_largest_sizes_are_summed(metadata_url: str) -> None:
    async with open_cached(metadata_url) as world:
        names = [bytes([number]) for number in range(3)]
        images = [image(world, f"v{name[0]}", (name, TIB)) for name in names]
        world.upstream.add_index(APP, "all", of=tuple(images))
        for reference in ("all", *images):
            assert (await world.pull(reference)).status == 200
        found = world.rows("SELECT max(size_bytes) FROM manifests")
        assert found == [(3 * TIB + len(b"{}"),)]
        await world.check()

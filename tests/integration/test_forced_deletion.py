"""Deleting a child of an index by force: the index lacks it, says so, and gets it back."""

from __future__ import annotations

from typing import Any

import pytest

from registry.services.pull_through import references
from registry.services.pull_through.references import TREE_BOUNDS
from tests.integration.counted_images import check, collect_at_once, size_of
from tests.integration.pushing import Descriptor, World, refused


async def delete(world: World, image: Descriptor, **query: str) -> Any:  # noqa: ANN401
    return await world.control.delete(f"{world.images}/{image['digest']}", params=query)


async def stays(world: World, *images: Descriptor, **query: str) -> None:
    """Check that images cannot be deleted."""
    for image in images:
        refused(await delete(world, image, **query), 409, "CONFLICT")


async def force(world: World, image: Descriptor) -> Any:  # noqa: ANN401 - JSON
    """Delete an image by force and return what the answer says was deleted."""
    answer = await delete(world, image, force="true")
    assert answer.status_code == 200, answer.text
    return answer.json()["deleted"]


async def batch(world: World, action: str, *images: Descriptor, **query: str) -> Any:  # noqa: ANN401
    """Delete or restore images together; return the answer."""
    body = {"digests": [image["digest"] for image in images]}
    return await world.control.post(f"{world.images}/{action}", json=body, params=query)


async def restore(world: World, image: Descriptor) -> list[str]:
    """Restore an image and return the digests of what came back."""
    outcome = (await batch(world, "restore", image)).json()
    assert outcome["failures"] == []
    return [each["digest"] for each in outcome["restored"]]


async def make_sparse(world: World) -> tuple[Descriptor, Descriptor, Descriptor]:
    """Push two images and an index ``v1`` of them, without the second; return all three."""
    amd, arm = await world.push_image("amd"), await world.push_image("arm")
    index = await world.push_index([amd, arm], "v1")
    await force(world, arm)
    return amd, arm, index


async def test_a_child_goes_by_force_with_its_tags(world: World, database_url: str) -> None:
    amd, arm = await world.push_image("amd", "v1-amd"), await world.push_image("arm", "v1-arm")
    index = await world.push_index([amd, arm], "v1", "latest")
    outer = await world.push_index([index], "all")
    kept = await delete(world, arm)
    refused(kept, 409, "CONFLICT")
    assert kept.json()["error"]["message"].endswith("delete the index first, or force")
    on_v2 = await world.docker.delete(f"/v2/{world.name}/manifests/{arm['digest']}")
    assert on_v2.status_code == 405
    (said,) = on_v2.json()["errors"]
    assert said["detail"] == {"parents": [index["digest"]]}
    assert said["message"].endswith("; delete the index first")  # nobody can force it here

    assert await force(world, arm) == {
        "digest": arm["digest"],
        "tags": ["v1-arm"],
        "incomplete_indexes": [{"digest": index["digest"], "tags": ["latest", "v1"]}],
    }
    assert not await world.pulls(arm["digest"])
    assert not await world.pulls("v1-arm")
    for reference in ("v1", "all", amd["digest"], "v1-amd"):
        assert await world.pulls(reference)
    for each in (index, outer):
        assert await size_of(world, each) == await size_of(world, amd)
    assert (await world.record())["size_bytes"] == await size_of(world, amd)
    await collect_at_once(world)
    await check(world, database_url)

    assert await restore(world, arm) == [arm["digest"]]
    assert await world.pulls("v1-arm")
    await stays(world, arm)  # the index lists it again
    assert await size_of(world, outer) == await size_of(world, amd) + len("arm")
    await check(world, database_url)


async def test_a_sparse_index_gets_further_tags_and_is_whole_under_all_of_them(
    world: World, metadata_url: str
) -> None:
    amd, arm, index = await make_sparse(world)
    assert await world.push_index([amd, arm], "v2") == index
    told = await world.control.put(f"{world.path}/tags/v3", json={"digest": index["digest"]})
    assert told.is_success, told.text
    outer = await world.push_index([index], "all")
    assert await size_of(world, outer) == await size_of(world, amd)
    await check(world, metadata_url)
    assert await restore(world, arm) == [arm["digest"]]
    for reference in ("v1", "v2", "v3", "all", arm["digest"]):
        assert await world.pulls(reference)
    assert await size_of(world, outer) == await size_of(world, amd) + len("arm")
    await check(world, metadata_url)


async def test_a_sparse_index_that_was_deleted_is_pushed_only_with_its_children(
    world: World, metadata_url: str
) -> None:
    amd, arm, index = await make_sparse(world)
    await delete(world, index)
    with pytest.raises(AssertionError, match="MANIFEST_BLOB_UNKNOWN"):
        await world.push_index([amd, arm], "v1")
    await check(world, metadata_url)


async def test_a_sparse_index_goes_and_comes_back_sparse(world: World, database_url: str) -> None:
    amd, arm, index = await make_sparse(world)
    path = f"{world.images}/{index['digest']}/delete-with-children"
    deleted = (await world.control.post(path, json={})).json()["deleted"]
    assert [each["digest"] for each in deleted] == [index["digest"], amd["digest"]]
    await check(world, database_url)
    assert await restore(world, index) == [amd["digest"], index["digest"]]
    assert await size_of(world, index) == await size_of(world, amd)
    await check(world, database_url)
    # The child comes back while the index is deleted: the index has it when it is restored.
    await delete(world, index)
    await restore(world, arm)
    await restore(world, index)
    await stays(world, arm)
    assert await size_of(world, index) == await size_of(world, amd) + len("arm")
    await check(world, database_url)


async def test_a_batch_takes_from_an_index_only_what_stays(world: World, metadata_url: str) -> None:
    both, other = await world.push_image("both"), await world.push_image("other")
    going = await world.push_index([both, other], "going")
    staying = await world.push_index([both], "staying")
    outcome = (await batch(world, "batch-delete", both, other, going, force="true")).json()
    assert outcome["failures"] == []
    told = {each["digest"]: each.get("incomplete_indexes") for each in outcome["deleted"]}
    assert told == {
        going["digest"]: None,
        other["digest"]: None,
        both["digest"]: [{"digest": staying["digest"], "tags": ["staying"]}],
    }
    await check(world, metadata_url)
    # What went together is whole when it comes back.
    assert set(await restore(world, going)) == told.keys()
    await stays(world, both)
    await delete(world, going)
    await stays(world, both)
    await check(world, metadata_url)


async def test_what_cannot_be_restored_whole_is_not_restored_at_all(
    world: World, metadata_url: str
) -> None:
    lower = await world.push_image("at the bottom")
    for _ in range(TREE_BOUNDS.depth // 2):
        lower = await world.push_index([lower])
    upper = await world.push_index([lower, await world.push_image("beside")])
    await force(world, lower)
    for _ in range(TREE_BOUNDS.depth // 2):
        upper = await world.push_index([upper])
    other = await world.push_image("other")
    await delete(world, other)
    answer = await batch(world, "restore", other, lower)
    assert not await world.pulls(lower["digest"])
    assert not await world.pulls(other["digest"])
    refused(answer, 400, "INVALID_INPUT")  # too deep, with what was pushed meanwhile
    await check(world, metadata_url)
    await delete(world, upper)
    assert set(await restore(world, lower)) == {lower["digest"]}
    await check(world, metadata_url)


async def test_so_many_indexes_that_to_measure_them_takes_long_keep_their_child(
    world: World, sqlite_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    child, beside = await world.push_image("child"), await world.push_image("beside")
    first = await world.push_index([child, beside])
    second = await world.push_index([child, first])
    # Two indexes: of 2 children with 4 blobs; of those again, with the index itself.
    monkeypatch.setattr(references, "MOST_ROWS", 2 * references.INDEX_ROWS + 16)
    await stays(world, child, force="true")
    together = await batch(world, "batch-delete", beside, child, force="true")
    refused(together, 409, "CONFLICT")
    assert await world.pulls(child["digest"])
    await check(world, sqlite_database)
    await delete(world, second)
    await force(world, child)
    await restore(world, child)
    await check(world, sqlite_database)


async def test_an_incomplete_index_is_told_with_a_few_of_its_tags(world: World) -> None:
    child = await world.push_image("child")
    await world.push_index([child], *(f"v{number:02}" for number in range(25)))
    (told,) = (await force(world, child))["incomplete_indexes"]
    assert told["tags"] == [f"v{number:02}" for number in range(20)]

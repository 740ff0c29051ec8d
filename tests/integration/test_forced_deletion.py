"""Deleting a child of an index by force: the index lacks it, says so, and gets it back."""

from __future__ import annotations

from typing import Any

import pytest

from registry.oci.media_types import OCI_INDEX
from registry.services.pull_through import references
from registry.services.pull_through.references import TREE_BOUNDS
from tests.databases import on_both_databases
from tests.integration.counted_images import check, collect_at_once, size_of
from tests.integration.pushing import Descriptor, World, refused

pytestmark = on_both_databases


async def force(world: World, image: Descriptor) -> Any:  # noqa: ANN401 - JSON
    """Delete an image by force and return what the answer says was deleted."""
    answer = await world.control.delete(
        f"{world.images}/{image['digest']}", params={"force": "true"}
    )
    assert answer.status_code == 200, answer.text
    return answer.json()["deleted"]


async def restore(world: World, image: Descriptor) -> list[str]:
    """Restore an image and return the digests of what came back."""
    answer = await world.control.post(
        f"{world.images}/restore", json={"digests": [image["digest"]]}
    )
    outcome = answer.json()
    assert outcome["failures"] == []
    return [each["digest"] for each in outcome["restored"]]


async def test_a_child_goes_by_force_with_its_tags(world: World, database_url: str) -> None:
    amd, arm = await world.push_image("amd", "v1-amd"), await world.push_image("arm", "v1-arm")
    index = await world.push_index([amd, arm], "v1", "latest")
    outer = await world.push_index([index], "all")
    path = f"{world.images}/{arm['digest']}"
    stays = await world.control.delete(path)
    refused(stays, 409, "CONFLICT")
    assert stays.json()["error"]["message"].endswith("delete the index first, or force")
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
    refused(await world.control.delete(path), 409, "CONFLICT")  # the index lists it again
    assert await size_of(world, outer) == await size_of(world, amd) + len("arm")
    await check(world, database_url)


async def test_a_child_that_is_pushed_again_heals_its_indexes(
    world: World, database_url: str
) -> None:
    document = await world.image_document("again")
    child = await world.push(document)
    index = await world.push_index([child, await world.push_image("other")], "v1")
    whole = await size_of(world, index)
    await force(world, child)
    again = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [child], "annotations": {}}
    with pytest.raises(AssertionError, match="MANIFEST_BLOB_UNKNOWN"):
        await world.push(again, "v2")  # a new index still needs what it lists
    for layer in ("again", "{}"):
        await world.push_blob(layer.encode())
    await world.push(document)
    refused(await world.control.delete(f"{world.images}/{child['digest']}"), 409, "CONFLICT")
    assert await size_of(world, index) == whole
    await check(world, database_url)


async def test_a_sparse_index_gets_further_tags_and_is_whole_under_all_of_them(
    world: World, database_url: str
) -> None:
    amd, arm = await world.push_image("amd"), await world.push_image("arm")
    index = await world.push_index([amd, arm], "v1")
    await force(world, arm)
    assert await world.push_index([amd, arm], "v2") == index
    told = await world.control.put(f"{world.path}/tags/v3", json={"digest": index["digest"]})
    assert told.is_success, told.text
    outer = await world.push_index([index], "all")
    assert await size_of(world, outer) == await size_of(world, amd)
    await check(world, database_url)
    assert await restore(world, arm) == [arm["digest"]]
    for reference in ("v1", "v2", "v3", "all", arm["digest"]):
        assert await world.pulls(reference)
    assert await size_of(world, outer) == await size_of(world, amd) + len("arm")
    await check(world, database_url)


async def test_a_sparse_index_that_was_deleted_is_pushed_only_with_its_children(
    world: World, database_url: str
) -> None:
    amd, arm = await world.push_image("amd"), await world.push_image("arm")
    index = await world.push_index([amd, arm], "v1")
    await force(world, arm)
    await world.control.delete(f"{world.images}/{index['digest']}")
    with pytest.raises(AssertionError, match="MANIFEST_BLOB_UNKNOWN"):
        await world.push_index([amd, arm], "v1")
    await check(world, database_url)


async def test_a_sparse_index_goes_and_comes_back_sparse(world: World, database_url: str) -> None:
    amd, arm = await world.push_image("amd"), await world.push_image("arm")
    index = await world.push_index([amd, arm], "v1")
    await force(world, arm)
    path = f"{world.images}/{index['digest']}/delete-with-children"
    answer = await world.control.post(path, json={})
    assert [each["digest"] for each in answer.json()["deleted"]] == [
        index["digest"],
        amd["digest"],
    ]
    await check(world, database_url)
    assert await restore(world, index) == [amd["digest"], index["digest"]]
    assert await size_of(world, index) == await size_of(world, amd)
    await check(world, database_url)
    # The child comes back while the index is deleted: the index has it when it is restored.
    await world.control.delete(f"{world.images}/{index['digest']}")
    await restore(world, arm)
    await restore(world, index)
    refused(await world.control.delete(f"{world.images}/{arm['digest']}"), 409, "CONFLICT")
    assert await size_of(world, index) == await size_of(world, amd) + len("arm")
    await check(world, database_url)


async def test_a_batch_takes_from_an_index_only_what_stays(world: World, database_url: str) -> None:
    both, other = await world.push_image("both"), await world.push_image("other")
    going = await world.push_index([both, other], "going")
    staying = await world.push_index([both], "staying")
    digests = [each["digest"] for each in (both, other, going)]
    path = f"{world.images}/batch-delete"
    answer = await world.control.post(path, json={"digests": digests}, params={"force": "true"})
    outcome = answer.json()
    assert outcome["failures"] == []
    told = {each["digest"]: each.get("incomplete_indexes") for each in outcome["deleted"]}
    assert told == {
        going["digest"]: None,
        other["digest"]: None,
        both["digest"]: [{"digest": staying["digest"], "tags": ["staying"]}],
    }
    await check(world, database_url)
    # What went together is whole when it comes back.
    assert set(await restore(world, going)) == set(digests)
    refused(await world.control.delete(f"{world.images}/{both['digest']}"), 409, "CONFLICT")
    await world.control.delete(f"{world.images}/{going['digest']}")
    refused(await world.control.delete(f"{world.images}/{both['digest']}"), 409, "CONFLICT")
    await check(world, database_url)


async def test_force_without_an_index_answers_as_ever(world: World) -> None:
    image = await world.push_image("pinned", "v1")
    path = f"{world.images}/{image['digest']}"
    await world.control.put(f"{path}/pins/prod", json={})
    refused(await world.control.delete(path), 409, "CONFLICT")
    answer = await world.control.delete(path, params={"force": "true"})
    assert (answer.status_code, answer.content) == (204, b"")


async def test_what_cannot_be_restored_whole_is_not_restored_at_all(
    world: World, database_url: str
) -> None:
    lower = await world.push_image("at the bottom")
    for _ in range(TREE_BOUNDS.depth // 2):
        lower = await world.push_index([lower])
    upper = await world.push_index([lower, await world.push_image("beside")])
    await force(world, lower)
    for _ in range(TREE_BOUNDS.depth // 2):
        upper = await world.push_index([upper])
    other = await world.push_image("other")
    await world.control.delete(f"{world.images}/{other['digest']}")
    both = {"digests": [other["digest"], lower["digest"]]}
    answer = await world.control.post(f"{world.images}/restore", json=both)
    assert not await world.pulls(lower["digest"])
    assert not await world.pulls(other["digest"])
    refused(answer, 400, "INVALID_INPUT")  # too deep, with what was pushed meanwhile
    await check(world, database_url)
    await world.control.delete(f"{world.images}/{upper['digest']}")
    assert set(await restore(world, lower)) == {lower["digest"]}
    await check(world, database_url)


async def test_so_many_indexes_that_to_measure_them_takes_long_keep_their_child(
    world: World, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    child, beside = await world.push_image("child"), await world.push_image("beside")
    first = await world.push_index([child, beside])
    second = await world.push_index([child, first])
    path = f"{world.images}/{child['digest']}"
    # Two indexes: of 2 children with 4 blobs; of those again, with the index itself.
    monkeypatch.setattr(references, "MOST_ROWS", 2 * references.INDEX_ROWS + 16)
    refused(await world.control.delete(path, params={"force": "true"}), 409, "CONFLICT")
    digests = {"digests": [beside["digest"], child["digest"]]}
    batch = f"{world.images}/batch-delete"
    refused(
        await world.control.post(batch, json=digests, params={"force": "true"}), 409, "CONFLICT"
    )
    assert await world.pulls(child["digest"])
    await check(world, database_url)
    await world.control.delete(f"{world.images}/{second['digest']}")
    await force(world, child)
    await restore(world, child)
    await check(world, database_url)


async def test_an_incomplete_index_is_told_with_a_few_of_its_tags(world: World) -> None:
    child = await world.push_image("child")
    await world.push_index([child], *(f"v{number:02}" for number in range(25)))
    (told,) = (await force(world, child))["incomplete_indexes"]
    assert told["tags"] == [f"v{number:02}" for number in range(20)]

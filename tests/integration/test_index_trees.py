"""How much may be under an index: depth, manifests, blobs; and what measuring it costs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_INDEX, OCI_MANIFEST
from registry.services.pull_through import references
from registry.services.pull_through.references import TREE_BOUNDS
from tests.databases import on_both_databases
from tests.inprocess import Answer, Registry
from tests.integration.counting import CountingDatabase, open_counting

APP: Final = "/v2/dev/app"
BLOB: Final = b"a blob"


class Trees:
    """A registry into which indexes are pushed."""

    def __init__(self, registry: Registry, database: CountingDatabase) -> None:
        self.registry = registry
        self.database = database

    async def blob(self, data: bytes = BLOB) -> dict[str, Any]:
        path = f"{APP}/blobs/uploads/?digest={digest_of(data)}"
        assert (await self.registry.client.request("POST", path, data)).status == 201
        return {"mediaType": "a/b", "digest": digest_of(data), "size": len(data)}

    async def put(self, kind: str, **fields: object) -> tuple[Answer, dict[str, Any]]:
        body = json.dumps({"schemaVersion": 2, "mediaType": kind, **fields}).encode()
        digest = digest_of(body)
        self.database.start()
        answer = await self.registry.client.request(
            "PUT", f"{APP}/manifests/{digest}", body, {"content-type": kind}
        )
        return answer, {"mediaType": kind, "digest": digest, "size": len(body)}

    async def image(self, name: str = "", layers: int = 0) -> dict[str, Any]:
        parts = [await self.blob(b"%d" % number) for number in range(layers)]
        config = await self.blob()
        answer, found = await self.put(
            OCI_MANIFEST, config=config, layers=parts, annotations={"name": name}
        )
        assert answer.status == 201
        return found

    async def index(self, *children: dict[str, Any]) -> dict[str, Any]:
        answer, found = await self.put(OCI_INDEX, manifests=list(children))
        assert answer.status == 201, answer.body
        return found

    async def refused(self, *children: dict[str, Any]) -> str:
        answer, _ = await self.put(OCI_INDEX, manifests=list(children))
        assert (answer.status, answer.codes) == (400, ["MANIFEST_INVALID"])
        return str(answer.json()["errors"][0]["message"])


@pytest.fixture
async def trees(metadata_url: str) -> AsyncIterator[Trees]:
    """Return a registry whose statements are counted."""
    async with open_counting(metadata_url) as (registry, counted):
        yield Trees(registry, counted)


async def test_indexes_lie_in_each_other_only_so_deep(trees: Trees) -> None:
    image = await trees.image()
    found = image
    for _ in range(TREE_BOUNDS.depth):
        found = await trees.index(found)
    assert "32 deep" in await trees.refused(found)
    # The longest way down counts, whatever shorter ones there are.
    assert "32 deep" in await trees.refused(image, found)
    assert len(trees.database.seen) < TREE_BOUNDS.depth + 20


async def test_the_longest_way_down_counts(trees: Trees) -> None:
    found = [await trees.image()]
    for _ in range(TREE_BOUNDS.depth):
        found.append(await trees.index(*found[-3:]))
    assert "32 deep" in await trees.refused(*found[-3:])


async def test_manifests_under_an_index_are_counted_where_they_are_listed(
    trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(references, "TREE_BOUNDS", TREE_BOUNDS._replace(edges=10))
    images = [await trees.image(str(number)) for number in range(4)]
    one, other = await trees.index(*images), await trees.index(*images, images[0], images[1])
    assert other != one
    top = await trees.index(one, other)  # two, and four under each
    assert "10 manifests" in await trees.refused(top)


@on_both_databases
async def test_blobs_under_an_index_are_counted_before_they_are_added_up(
    trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(references, "TREE_BOUNDS", TREE_BOUNDS._replace(blobs=10))
    few, many = await trees.image("few", 3), await trees.image("many", 5)
    await trees.index(few, few)
    await trees.index(few, many)  # with their configs these are ten
    other = await trees.image("one")
    assert "at most 10 blobs" in await trees.refused(few, many, other)
    texts = [statement.sqlite for statement in trees.database.seen]
    assert not any("sum(" in text for text in texts)


async def test_no_statement_of_a_walk_returns_more_rows_than_are_left(trees: Trees) -> None:
    """Indexes that all list all of the level below have many more edges than manifests."""
    level = [await trees.image(str(number)) for number in range(6)]
    refused = 0
    for number in range(8):
        made = []
        for place in range(6):
            fields = {"manifests": level, "annotations": {"place": f"{number} {place}"}}
            answer, found = await trees.put(OCI_INDEX, **fields)
            refused += answer.status == 400
            made += [found] if answer.status == 201 else []
        level = made or level
    assert refused == 0
    # 8 levels of 36 edges: a walk that looked at each path would need 6 ** 8 rows.
    assert len(trees.database.seen) < 25

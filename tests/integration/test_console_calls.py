"""What each page of the console costs: how often it calls ``/v1``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from registry.oci.media_types import OCI_INDEX
from tests.integration.console_shop import Shop, open_shop


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    async with open_shop(tmp_path / "data") as shop:
        yield shop


async def test_pages_call_as_often_whatever_they_list(shop: Shop) -> None:
    plain = await shop.image("plain", "plain")
    parts = [await shop.image(f"part-{number}") for number in range(5)]
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": parts}
    whole = await shop.manifest(index, "whole")

    # The repository by its name, what may be done on it, and its images.
    assert await shop.cost() == 3
    assert await shop.cost("?tag_status=any") == 3
    # These two, the image with its configuration, its manifest, its referrers, the tags that
    # spell its digest, its pins, its storage.
    assert await shop.cost(f"/images/{plain['digest']}") == 8
    # The preview of a deletion too, which tells the size of each part.
    assert await shop.cost(f"/images/{whole['digest']}") == 9
    assert await shop.cost("/tags") == 3
    assert await shop.cost("/tags/plain") == 4
    assert await shop.cost("/lifecycle") == 4
    assert await shop.cost("/deleted") == 4
    # The repository, what may be done on it, and the deletion.
    named = " ".join(each["digest"] for each in (whole, *parts))
    path = f"/images/{whole['digest']}/delete-with-children"
    assert await shop.cost(path, digests=named) == 3
    assert await shop.cost("?tag_status=any") == 3

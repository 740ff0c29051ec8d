"""The page of the account's storage: damaged blobs with the images they hit, and savings."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import bindparam

from cloudcore.db.statement import Statement
from registry.metadata.tables import blob_objects
from tests.integration.console_shop import Shop, digest_of, open_shop

_DAMAGE = Statement(
    blob_objects.update()
    .where(blob_objects.c.digest == bindparam("of"))
    .values(damage=bindparam("found"), damaged_at=bindparam("now"))
)

_UNSEALED = Statement(blob_objects.update().values(stored_size=blob_objects.c.size))
_STORED = Statement(
    blob_objects.update()
    .where(blob_objects.c.digest == bindparam("of"))
    .values(stored_size=bindparam("stored"))
)


@pytest.fixture
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shop]:
    async with open_shop(tmp_path_factory.mktemp("storage") / "data") as shop:
        yield shop


async def test_damaged_blobs_are_shown_with_the_images_that_need_them(shop: Shop) -> None:
    image = await shop.image("damaged", "v1")
    whole = await shop.browser.get("/console/storage")
    assert (whole.status_code, "Damaged blobs" in whole.text) == (200, False)
    layer = digest_of(b"damaged")
    await shop.served.database.write(
        lambda tx: tx.execute(_DAMAGE, of=layer, found="digest", now=1_000_000)
    )
    page = (await shop.browser.get("/console/storage")).text
    assert "The stored bytes of 1 blob are missing or wrong" in page
    assert f'title="{layer}"' in page
    assert "its bytes changed" in page
    assert f'title="{image["digest"]}"' in page
    assert ">v1</a>" in page


async def test_what_compression_saves_is_shown_if_it_is_something(shop: Shop) -> None:
    await shop.image("damaged", "v1")
    assert "saved by compression" not in (await shop.browser.get("/console/storage")).text
    layer = digest_of(b"damaged")
    await shop.served.database.write(lambda tx: tx.execute(_UNSEALED))
    await shop.served.database.write(lambda tx: tx.execute(_STORED, of=layer, stored=2))
    page = (await shop.browser.get("/console/storage")).text
    assert '<b title="5 bytes">5 B</b> more saved by compression' in page

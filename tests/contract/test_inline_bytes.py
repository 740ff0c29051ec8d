"""The rows of inline bytes: they live as long as an object, live or in quarantine, has them."""

from __future__ import annotations

import pytest

from cloudcore.db.base import Connection, Database
from cloudcore.identity.tables import accounts
from registry.metadata.blobs import inline
from registry.metadata.blobs.damage import switch_bytes
from registry.metadata.blobs.objects import BLOB_ROWS, NewObject, keep_object
from registry.metadata.collector import collection, generations
from registry.metadata.tables import blob_objects
from tests.contract.content_rows import ACCOUNT, OBJECT, insert
from tests.databases import on_both_databases

pytestmark = on_both_databases

BODY = b"1234567"


@pytest.fixture
async def database(database: Database) -> Database:
    """Return a database with a condemned inline object."""

    def store(tx: Connection) -> None:
        insert(accounts, ACCOUNT).run(tx)
        insert(blob_objects, OBJECT, state="condemned", condemned_at=0, is_inline=True).run(tx)
        inline.add_body(tx, "stored", BODY)

    await database.write(store)
    return database


async def test_a_body_is_read(database: Database) -> None:
    assert await database.read(inline.read_body, "stored") == BODY
    assert await database.read(inline.read_body, "other") is None


async def test_a_body_is_never_written_over(database: Database) -> None:
    await database.write(inline.add_body, "stored", b"other")
    assert await database.read(inline.read_body, "stored") == BODY


async def test_a_swept_object_keeps_its_body_until_its_removal(database: Database) -> None:
    assert await database.write(collection.sweep, "account", ["object"], 1) == 1
    assert await database.read(inline.read_body, "stored") == BODY
    assert await database.read(inline.stray_bodies, 9) == []
    found = await database.write(collection.begin_removal, "account", 1, 2, 9)
    assert found == [("stored", True)]
    assert await database.write(collection.finish_removal, ["stored"]) == (1, 7)
    assert await database.read(inline.read_body, "stored") is None


async def test_a_body_stays_whose_removal_has_not_begun(database: Database) -> None:
    await database.write(collection.sweep, "account", ["object"], 1)
    assert await database.write(collection.finish_removal, ["stored"]) == (0, 0)
    assert await database.read(inline.read_body, "stored") == BODY


async def test_a_recovered_object_has_its_body(database: Database) -> None:
    await database.write(collection.sweep, "account", ["object"], 1)
    (swept,) = await database.read(collection.list_recoverable, "account", "sha256:layer")
    assert swept.is_inline

    def recover(tx: Connection) -> None:
        new = NewObject(*(getattr(swept, name) for name in NewObject._fields))
        assert keep_object(tx, "account", new, 2).is_inline
        collection.release(tx, "account", "object")

    await database.write(recover)
    assert await database.read(inline.read_body, "stored") == BODY
    assert await database.read(inline.stray_bodies, 9) == []


async def test_switched_bytes_go_to_the_quarantine(database: Database) -> None:
    new = NewObject("object", "sha256:layer", 7, 9, "sealed", "new", is_inline=True, checksum="sum")

    def switch(tx: Connection) -> None:
        inline.add_body(tx, "new", b"123456789")
        assert switch_bytes(tx, "account", "stored", new, "quarantined", 5)

    await database.write(switch)
    rows = await database.read(inline.inline_objects, "", 9)
    assert rows == [("new", "sha256:layer", 9, "sum", b"123456789")]
    assert await database.read(inline.read_body, "stored") == BODY
    assert await database.read(inline.stray_bodies, 9) == []
    await database.write(collection.begin_removal, "account", 5, 6, 9)
    await database.write(collection.finish_removal, ["stored"])
    assert await database.read(inline.read_body, "stored") is None
    assert await database.read(inline.read_body, "new") == b"123456789"


async def test_inline_objects_are_not_those_of_the_store(database: Database) -> None:
    await database.write(lambda tx: insert(blob_objects, OBJECT, **_IN_THE_STORE).run(tx))
    assert [row.stored_id for row in await database.read(inline.inline_objects, "", 9)] == [
        "stored"
    ]
    assert await database.read(inline.inline_objects, "stored", 9) == []
    assert await database.read(BLOB_ROWS.count_stored) == (1, 7)


_IN_THE_STORE = {"id": "o2", "stored_id": "s2", "digest": "sha256:other"}


async def test_a_lost_body_is_told(database: Database) -> None:
    await database.write(inline.drop_bodies, ["stored"])
    (row,) = await database.read(inline.inline_objects, "", 9)
    assert row.body is None


async def test_a_restored_backup_has_no_body_of_the_quarantine(database: Database) -> None:
    await database.write(collection.sweep, "account", ["object"], 1)
    await database.write(generations.forget_unfinished)
    assert await database.read(inline.read_body, "stored") is None


async def test_a_body_without_an_object_is_found(database: Database) -> None:
    await database.write(inline.add_body, "stray", b"123")
    assert await database.read(inline.stray_bodies, 9) == [("stray", 3)]

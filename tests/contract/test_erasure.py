"""The wraps of a deleted key are erased; what no other key opens is shredded."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select, text

from cloudcore.db.base import Connection, Database, Row
from cloudcore.db.statement import Statement
from cloudcore.identity.tables import accounts
from cloudcore.kms.rows import kms_keys
from registry.metadata.blobs.objects import NewObject, keep_object, link_object
from registry.metadata.collector import audit, collection, erasure
from registry.metadata.collector.erasure import DeletedKey, Erased
from registry.metadata.control_tables import quarantined_object_keys, quarantined_objects
from registry.metadata.tables import (
    blob_object_keys,
    blob_objects,
    repositories,
    repository_blobs,
)
from tests.contract.content_rows import ACCOUNT, KEY, LINK, OBJECT, REPOSITORY, WRAP, insert
from tests.databases import on_both_databases

pytestmark = on_both_databases
DELETED = DeletedKey("account", "key")
SEALED = OBJECT | {"encoding": "sealed", "checksum": "sum", "stored_size": 111}


@pytest.fixture
async def database(database: Database) -> Database:
    """Return a database in which `key` opens `object`, and also `shared`, as `other` does."""

    def store(tx: Connection) -> None:
        insert(accounts, ACCOUNT).run(tx)
        insert(repositories, REPOSITORY).run(tx)
        insert(kms_keys, KEY).run(tx)
        insert(kms_keys, KEY, id="other", name="other").run(tx)
        insert(blob_objects, SEALED).run(tx)
        insert(blob_objects, SEALED, id="shared", stored_id="2", digest="sha256:shared").run(tx)
        insert(blob_object_keys, WRAP).run(tx)
        insert(blob_object_keys, WRAP, object_id="shared").run(tx)
        insert(blob_object_keys, WRAP, object_id="shared", kms_key_id="other").run(tx)

    await database.write(store)
    return database


def _delete_key(tx: Connection) -> None:
    """Delete `key`."""
    where = kms_keys.c.id == text("'key'")
    values = {"state": text("'deleted'"), "name": text("NULL"), "deletion_at": text("1")}
    tx.execute(Statement(kms_keys.update().where(where).values(values)))


async def _link(database: Database, **changed: Any) -> None:  # noqa: ANN401
    await database.write(lambda tx: insert(repository_blobs, LINK, **changed).run(tx))


async def _rows(database: Database, *columns: Any) -> list[Row]:  # noqa: ANN401 - SQLAlchemy
    statement = Statement(select(*columns).order_by(*columns))
    return [tuple(row) for row in await database.read(lambda tx: tx.rows(statement))]


async def _states(database: Database) -> list[Row]:
    o = blob_objects.c
    return await _rows(database, o.id, o.state, o.is_current, o.stored_size)


async def test_only_keys_that_are_deleted_are_found(database: Database) -> None:
    assert await database.read(erasure.keys_to_erase, "", 9) == []
    await database.write(_delete_key)
    assert await database.read(erasure.keys_to_erase, "", 9) == [DELETED]
    assert await database.read(erasure.keys_to_erase, "key", 9) == []


async def test_blobs_are_shredded_that_only_this_key_opened(database: Database) -> None:
    await _link(database)
    await _link(database, object_id="shared", digest="sha256:shared", kms_key_id="other")
    await database.write(_delete_key)
    assert await database.write(erasure.erase_wraps, DELETED, 9) == Erased(2, 1, 111)
    assert await database.read(erasure.keys_to_erase, "", 9) == []
    k, q = blob_object_keys.c, quarantined_objects.c
    assert await _rows(database, k.object_id, k.kms_key_id, k.wrapped_data_key) == [
        ("object", "key", None),
        ("shared", "other", b"wrapped"),
    ]
    assert await _states(database) == [
        ("object", "shredded", False, 0),
        ("shared", "live", True, 111),
    ]
    assert await _rows(database, q.stored_id, q.stored_size, q.swept_at) == [("stored", 111, 0)]
    assert await database.read(collection.list_recoverable, "account", "sha256:layer") == []
    assert await database.read(audit.owned, ["stored", "2"]) == {"stored", "2"}
    await database.write(collection.begin_removal, "account", 0, 1, 9)
    await database.write(collection.finish_removal, ["stored"])
    assert await database.read(audit.owned, ["stored", "2"]) == {"2"}


async def test_it_is_done_in_pages(database: Database) -> None:
    await _link(database)
    await database.write(_delete_key)
    assert await database.write(erasure.erase_wraps, DELETED, 1) == Erased(1, 1, 111)
    assert await database.read(erasure.keys_to_erase, "", 9) == [DELETED]
    assert await database.write(erasure.erase_wraps, DELETED, 1) == Erased(1, 0, 0)
    assert await database.write(erasure.erase_wraps, DELETED, 1) == Erased()


async def test_a_shredded_object_goes_with_its_last_link(database: Database) -> None:
    await _link(database)
    await database.write(_delete_key)
    await database.write(erasure.erase_wraps, DELETED, 9)

    def unlink(tx: Connection) -> int:
        tx.execute(Statement(repository_blobs.delete()))
        return collection.condemn(tx, "account", ["object"], 5)

    assert await database.write(unlink) == 0
    assert await _states(database) == [("shared", "live", True, 111)]


async def test_a_condemned_object_that_is_shredded_leaves_no_row(database: Database) -> None:
    await database.write(collection.condemn, "account", ["object"], 5)
    await database.write(_delete_key)
    await database.write(erasure.erase_wraps, DELETED, 9)
    assert await _states(database) == [("shared", "live", True, 111)]
    assert await _rows(database, quarantined_objects.c.stored_id) == [("stored",)]


async def test_a_push_of_a_shredded_blob_makes_a_new_object(database: Database) -> None:
    await _link(database)
    await database.write(_delete_key)
    await database.write(erasure.erase_wraps, DELETED, 9)

    def push(tx: Connection) -> str:
        new = NewObject("new", "sha256:layer", 7, 7, "plain", "new")
        kept = keep_object(tx, "account", new, 6)
        collection.lock_objects(tx, "account", ["object"])
        link_object(tx, "repository", "account", "sha256:layer", kept.id, 7, 6)
        collection.condemn(tx, "account", ["object"], 6)
        return kept.id

    assert await database.write(push) == "new"
    assert await _states(database) == [("new", "live", True, 7), ("shared", "live", True, 111)]


async def test_wraps_in_quarantine_go_too(database: Database) -> None:
    for object_id in ("object", "shared"):
        await database.write(collection.condemn, "account", [object_id], 5)
        await database.write(collection.sweep, "account", [object_id], 6)
    await database.write(_delete_key)
    assert await database.write(erasure.erase_wraps, DELETED, 9) == Erased()
    assert await database.read(erasure.keys_to_erase, "", 9) == [DELETED]
    assert await database.write(erasure.erase_quarantined_wraps, DELETED, 9) == 2
    assert await database.read(erasure.keys_to_erase, "", 9) == []
    q, qk = quarantined_objects.c, quarantined_object_keys.c
    assert await _rows(database, qk.quarantined_id, qk.kms_key_id) == [("shared", "other")]
    assert await _rows(database, q.id, q.swept_at) == [("object", 0), ("shared", 6)]
    assert await database.read(collection.list_recoverable, "account", "sha256:layer") == []
    assert len(await database.read(collection.list_recoverable, "account", "sha256:shared")) == 1

"""Wrapped data keys go with the last link or tombstone that needs them."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select, text

from cloudcore.db.base import Connection, Database, Row
from cloudcore.db.statement import Statement
from cloudcore.identity.tables import accounts
from cloudcore.kms.rows import kms_keys
from registry.metadata.blobs.wraps import drop_unused_wraps, shred_unreadable
from registry.metadata.control_tables import (
    deleted_manifest_blobs,
    deleted_manifests,
    quarantined_objects,
)
from registry.metadata.tables import (
    blob_object_keys,
    blob_objects,
    manifest_bodies,
    repositories,
    repository_blobs,
)
from tests.contract.content_rows import (
    ACCOUNT,
    BODY,
    KEY,
    LINK,
    MANIFEST,
    OBJECT,
    REPOSITORY,
    WRAP,
    insert,
)
from tests.databases import on_both_databases

pytestmark = on_both_databases
SEALED = OBJECT | {"encoding": "sealed", "checksum": "sum", "stored_size": 111}
TOMBSTONE = MANIFEST | {"tags": "[]", "deleted_at": 0, "deleted_by": "", "restorable_until": 9}
HELD = {
    name: LINK[name] for name in ("digest", "object_id", "account_id", "size", "kms_key_id")
} | {"manifest_id": "manifest"}


@pytest.fixture
async def database(database: Database) -> Database:
    """Return a database with a sealed object that has wraps under the keys `key` and `other`."""

    def store(tx: Connection) -> None:
        insert(accounts, ACCOUNT).run(tx)
        insert(repositories, REPOSITORY).run(tx)
        insert(kms_keys, KEY).run(tx)
        insert(kms_keys, KEY, id="other", name="other").run(tx)
        insert(blob_objects, SEALED).run(tx)
        insert(blob_object_keys, WRAP).run(tx)
        insert(blob_object_keys, WRAP, kms_key_id="other").run(tx)

    await database.write(store)
    return database


async def _add(database: Database, *rows: tuple[Any, dict[str, Any]]) -> None:
    def store(tx: Connection) -> None:
        for table, row in rows:
            insert(table, row).run(tx)

    await database.write(store)


async def _rows(database: Database, *columns: Any) -> list[Row]:  # noqa: ANN401 - SQLAlchemy
    statement = Statement(select(*columns).order_by(*columns))
    return [tuple(row) for row in await database.read(lambda tx: tx.rows(statement))]


async def _keys(database: Database) -> list[str]:
    return [row[0] for row in await _rows(database, blob_object_keys.c.kms_key_id)]


async def test_a_wrap_that_no_link_needs_goes(database: Database) -> None:
    await _add(database, (repository_blobs, LINK))
    await database.write(drop_unused_wraps, "account", ["object", "unknown"])
    assert await _keys(database) == ["key"]
    assert await _rows(database, blob_objects.c.state, blob_objects.c.is_current) == [
        ("live", True)
    ]


async def test_the_wrap_of_a_tombstone_stays(database: Database) -> None:
    await _add(
        database,
        (repository_blobs, LINK),
        (manifest_bodies, BODY),
        (deleted_manifests, TOMBSTONE),
        (deleted_manifest_blobs, HELD | {"kms_key_id": "other"}),
    )
    await database.write(drop_unused_wraps, "account", ["object"])
    assert await _keys(database) == ["key", "other"]


async def test_an_object_that_nothing_references_keeps_its_wraps(database: Database) -> None:
    await database.write(drop_unused_wraps, "account", ["object"])
    assert await _keys(database) == ["key", "other"]


async def test_wraps_of_another_account_stay(database: Database) -> None:
    await _add(database, (repository_blobs, LINK))
    await database.write(drop_unused_wraps, "another", ["object"])
    assert await _keys(database) == ["key", "other"]


async def test_an_object_is_shredded_with_the_last_wrap_that_opens_it(database: Database) -> None:
    await _add(database, (repository_blobs, LINK))
    await database.write(_erase)
    await database.write(drop_unused_wraps, "account", ["object"])
    assert await _keys(database) == ["key"]
    o, q = blob_objects.c, quarantined_objects.c
    assert await _rows(database, o.state, o.is_current, o.stored_size, o.size) == [
        ("shredded", False, 0, 7)
    ]
    assert await _rows(database, q.stored_id, q.stored_size, q.swept_at, q.checksum) == [
        ("stored", 111, 0, "sum")
    ]
    assert await database.write(shred_unreadable, "account", ["object"]) == (0, 0)


async def test_an_object_that_a_key_opens_is_not_shredded(database: Database) -> None:
    await database.write(_erase)
    assert await database.write(shred_unreadable, "account", ["object"]) == (0, 0)
    assert await _rows(database, blob_objects.c.state) == [("live",)]


def _erase(tx: Connection) -> None:
    """Erase the wrap under `key`."""
    k = blob_object_keys
    where = k.c.kms_key_id == text("'key'")
    tx.execute(Statement(k.update().where(where).values(wrapped_data_key=text("NULL"))))

"""Wrapped data keys follow their object into the quarantine."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from cloudcore.db.base import Connection, Database, Row
from cloudcore.db.statement import Statement
from cloudcore.identity.tables import accounts
from cloudcore.kms.rows import kms_keys
from registry.metadata.blobs.wraps import Wrap
from registry.metadata.collector import collection
from registry.metadata.control_tables import quarantined_object_keys
from registry.metadata.tables import blob_object_keys, blob_objects
from tests.contract.content_rows import ACCOUNT, KEY, OBJECT, WRAP, insert
from tests.databases import on_both_databases

pytestmark = on_both_databases


@pytest.fixture
async def database(database: Database) -> Database:
    """Return a database with a condemned object, and its data key, once erased."""

    def store(tx: Connection) -> None:
        insert(accounts, ACCOUNT).run(tx)
        insert(kms_keys, KEY).run(tx)
        insert(kms_keys, KEY, id="erased", name="erased").run(tx)
        insert(blob_objects, OBJECT, state="condemned", checksum="sum").run(tx)
        insert(blob_object_keys, WRAP).run(tx)
        insert(blob_object_keys, WRAP, kms_key_id="erased", wrapped_data_key=None).run(tx)

    await database.write(store)
    return database


async def _rows(database: Database, table: Any) -> list[Row]:  # noqa: ANN401 - SQLAlchemy
    statement = Statement(select(*list(table.columns)[:2], table.c.wrapped_data_key))
    return [tuple(row) for row in await database.read(lambda tx: tx.rows(statement))]


async def test_a_swept_object_takes_its_keys_along(database: Database) -> None:
    assert await database.write(collection.sweep, "account", ["object"], 1) == 1
    assert await _rows(database, blob_object_keys) == []
    assert await _rows(database, quarantined_object_keys) == [("object", "key", b"wrapped")]


async def test_the_keys_in_quarantine_go_with_their_object(database: Database) -> None:
    await database.write(collection.sweep, "account", ["object"], 1)
    (swept,) = await database.read(collection.list_recoverable, "account", "sha256:layer")
    assert (swept.stored_id, swept.checksum) == ("stored", "sum")
    wraps = await database.read(collection.quarantined_wraps, "account", "object")
    assert wraps == [Wrap("key", b"wrapped", "enabled")]
    assert await database.read(collection.quarantined_wraps, "another", "object") == []
    await database.write(collection.release, "account", "object")
    assert await _rows(database, quarantined_object_keys) == []

"""Wrapped data keys: dropped with what needs them, swept along, and erased with their KMS key."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select, text

from cloudcore.db.base import Connection, Database, Row
from cloudcore.db.statement import Statement
from cloudcore.identity.tables import accounts
from cloudcore.kms.rows import kms_keys
from registry.metadata.blobs.objects import NewObject, keep_object, link_object
from registry.metadata.blobs.wraps import Wrap, drop_unused_wraps, shred_unreadable
from registry.metadata.collector import audit, collection, erasure
from registry.metadata.collector.erasure import DeletedKey, Erased
from registry.metadata.control_tables import (
    deleted_manifest_blobs,
    deleted_manifests,
    quarantined_object_keys,
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
DELETED = DeletedKey("account", "key")
SEALED = OBJECT | {"encoding": "sealed", "checksum": "sum", "stored_size": 111}


TOMBSTONE = MANIFEST | {"tags": "[]", "deleted_at": 0, "deleted_by": "", "restorable_until": 9}
HELD = {
    name: LINK[name] for name in ("digest", "object_id", "account_id", "size", "kms_key_id")
} | {"manifest_id": "manifest"}


async def add(database: Database, *rows: tuple[Any, dict[str, Any]]) -> None:
    """Insert rows into tables."""

    def store(tx: Connection) -> None:
        for table, row in rows:
            insert(table, row).run(tx)

    await database.write(store)


@pytest.fixture
async def keyed(database: Database) -> Database:
    """Return a database with a repository, and the keys `key` and `other`."""
    await add(
        database,
        (accounts, ACCOUNT),
        (repositories, REPOSITORY),
        (kms_keys, KEY),
        (kms_keys, KEY | {"id": "other", "name": "other"}),
    )
    return database


@pytest.fixture
async def wrapped(keyed: Database) -> Database:
    """Return a database with a sealed object that has wraps under `key` and `other`."""
    await add(
        keyed,
        (blob_objects, SEALED),
        (blob_object_keys, WRAP),
        (blob_object_keys, WRAP | {"kms_key_id": "other"}),
    )
    return keyed


@pytest.fixture
async def condemned(keyed: Database) -> Database:
    """Return a database with a condemned object; its wrap under `other` was erased."""
    await add(
        keyed,
        (blob_objects, OBJECT | {"state": "condemned", "checksum": "sum"}),
        (blob_object_keys, WRAP),
        (blob_object_keys, WRAP | {"kms_key_id": "other", "wrapped_data_key": None}),
    )
    return keyed


@pytest.fixture
async def shared(keyed: Database) -> Database:
    """Return a database in which `key` opens `object`, and also `shared`, as `other` does."""
    of_shared = WRAP | {"object_id": "shared"}
    await add(
        keyed,
        (blob_objects, SEALED),
        (blob_objects, SEALED | {"id": "shared", "stored_id": "2", "digest": "sha256:shared"}),
        (blob_object_keys, WRAP),
        (blob_object_keys, of_shared),
        (blob_object_keys, of_shared | {"kms_key_id": "other"}),
    )
    return keyed


async def _rows(database: Database, *columns: Any) -> list[Row]:  # noqa: ANN401 - SQLAlchemy
    statement = Statement(select(*columns).order_by(*columns))
    return [tuple(row) for row in await database.read(lambda tx: tx.rows(statement))]


def _delete_key(tx: Connection) -> None:
    """Delete `key`."""
    where = kms_keys.c.id == text("'key'")
    values = {"state": text("'deleted'"), "name": text("NULL"), "deletion_at": text("1")}
    tx.execute(Statement(kms_keys.update().where(where).values(values)))


async def _link(database: Database, **changed: Any) -> None:  # noqa: ANN401
    await database.write(lambda tx: insert(repository_blobs, LINK, **changed).run(tx))


async def _states(database: Database) -> list[Row]:
    o = blob_objects.c
    return await _rows(database, o.id, o.state, o.is_current, o.stored_size)


async def test_only_keys_that_are_deleted_are_found(shared: Database) -> None:
    assert await shared.read(erasure.keys_to_erase, "", 9) == []
    await shared.write(_delete_key)
    assert await shared.read(erasure.keys_to_erase, "", 9) == [DELETED]
    assert await shared.read(erasure.keys_to_erase, "key", 9) == []


async def test_blobs_are_shredded_that_only_this_key_opened(shared: Database) -> None:
    await _link(shared)
    await _link(shared, object_id="shared", digest="sha256:shared", kms_key_id="other")
    await shared.write(_delete_key)
    assert await shared.write(erasure.erase_wraps, DELETED, 9) == Erased(2, 1, 111)
    assert await shared.read(erasure.keys_to_erase, "", 9) == []
    k, q = blob_object_keys.c, quarantined_objects.c
    assert await _rows(shared, k.object_id, k.kms_key_id, k.wrapped_data_key) == [
        ("object", "key", None),
        ("shared", "other", b"wrapped"),
    ]
    assert await _states(shared) == [
        ("object", "shredded", False, 0),
        ("shared", "live", True, 111),
    ]
    assert await _rows(shared, q.stored_id, q.stored_size, q.swept_at) == [("stored", 111, 0)]
    assert await shared.read(collection.list_recoverable, "account", "sha256:layer") == []
    assert await shared.read(audit.owned, ["stored", "2"]) == {"stored", "2"}
    await shared.write(collection.begin_removal, "account", 0, 1, 9)
    await shared.write(collection.finish_removal, ["stored"])
    assert await shared.read(audit.owned, ["stored", "2"]) == {"2"}


async def test_it_is_done_in_pages(shared: Database) -> None:
    await _link(shared)
    await shared.write(_delete_key)
    assert await shared.write(erasure.erase_wraps, DELETED, 1) == Erased(1, 1, 111)
    assert await shared.read(erasure.keys_to_erase, "", 9) == [DELETED]
    assert await shared.write(erasure.erase_wraps, DELETED, 1) == Erased(1, 0, 0)
    assert await shared.write(erasure.erase_wraps, DELETED, 1) == Erased()


async def test_a_shredded_object_goes_with_its_last_link(shared: Database) -> None:
    await _link(shared)
    await shared.write(_delete_key)
    await shared.write(erasure.erase_wraps, DELETED, 9)

    def unlink(tx: Connection) -> int:
        tx.execute(Statement(repository_blobs.delete()))
        return collection.condemn(tx, "account", ["object"], 5)

    assert await shared.write(unlink) == 0
    assert await _states(shared) == [("shared", "live", True, 111)]


async def test_a_condemned_object_that_is_shredded_leaves_no_row(shared: Database) -> None:
    await shared.write(collection.condemn, "account", ["object"], 5)
    await shared.write(_delete_key)
    await shared.write(erasure.erase_wraps, DELETED, 9)
    assert await _states(shared) == [("shared", "live", True, 111)]
    assert await _rows(shared, quarantined_objects.c.stored_id) == [("stored",)]


async def test_a_push_of_a_shredded_blob_makes_a_new_object(shared: Database) -> None:
    await _link(shared)
    await shared.write(_delete_key)
    await shared.write(erasure.erase_wraps, DELETED, 9)

    def push(tx: Connection) -> str:
        new = NewObject("new", "sha256:layer", 7, 7, "plain", "new")
        kept = keep_object(tx, "account", new, 6)
        collection.lock_objects(tx, "account", ["object"])
        link_object(tx, "repository", "account", "sha256:layer", kept.id, 7, 6)
        collection.condemn(tx, "account", ["object"], 6)
        return kept.id

    assert await shared.write(push) == "new"
    assert await _states(shared) == [("new", "live", True, 7), ("shared", "live", True, 111)]


async def test_wraps_in_quarantine_go_too(shared: Database) -> None:
    for object_id in ("object", "shared"):
        await shared.write(collection.condemn, "account", [object_id], 5)
        await shared.write(collection.sweep, "account", [object_id], 6)
    await shared.write(_delete_key)
    assert await shared.write(erasure.erase_wraps, DELETED, 9) == Erased()
    assert await shared.read(erasure.keys_to_erase, "", 9) == [DELETED]
    assert await shared.write(erasure.erase_quarantined_wraps, DELETED, 9) == 2
    assert await shared.read(erasure.keys_to_erase, "", 9) == []
    q, qk = quarantined_objects.c, quarantined_object_keys.c
    assert await _rows(shared, qk.quarantined_id, qk.kms_key_id) == [("shared", "other")]
    assert await _rows(shared, q.id, q.swept_at) == [("object", 0), ("shared", 6)]
    assert await shared.read(collection.list_recoverable, "account", "sha256:layer") == []
    assert len(await shared.read(collection.list_recoverable, "account", "sha256:shared")) == 1


async def _keys(database: Database) -> list[str]:
    return [row[0] for row in await _rows(database, blob_object_keys.c.kms_key_id)]


async def test_a_wrap_that_no_link_needs_goes(wrapped: Database) -> None:
    await add(wrapped, (repository_blobs, LINK))
    await wrapped.write(drop_unused_wraps, "account", ["object", "unknown"])
    assert await _keys(wrapped) == ["key"]
    assert await _rows(wrapped, blob_objects.c.state, blob_objects.c.is_current) == [("live", True)]


async def test_the_wrap_of_a_tombstone_stays(wrapped: Database) -> None:
    await add(
        wrapped,
        (repository_blobs, LINK),
        (manifest_bodies, BODY),
        (deleted_manifests, TOMBSTONE),
        (deleted_manifest_blobs, HELD | {"kms_key_id": "other"}),
    )
    await wrapped.write(drop_unused_wraps, "account", ["object"])
    assert await _keys(wrapped) == ["key", "other"]


async def test_an_object_that_nothing_references_keeps_its_wraps(wrapped: Database) -> None:
    await wrapped.write(drop_unused_wraps, "account", ["object"])
    assert await _keys(wrapped) == ["key", "other"]


async def test_wraps_of_another_account_stay(wrapped: Database) -> None:
    await add(wrapped, (repository_blobs, LINK))
    await wrapped.write(drop_unused_wraps, "another", ["object"])
    assert await _keys(wrapped) == ["key", "other"]


async def test_an_object_is_shredded_with_the_last_wrap_that_opens_it(wrapped: Database) -> None:
    await add(wrapped, (repository_blobs, LINK))
    await wrapped.write(_erase)
    await wrapped.write(drop_unused_wraps, "account", ["object"])
    assert await _keys(wrapped) == ["key"]
    o, q = blob_objects.c, quarantined_objects.c
    assert await _rows(wrapped, o.state, o.is_current, o.stored_size, o.size) == [
        ("shredded", False, 0, 7)
    ]
    assert await _rows(wrapped, q.stored_id, q.stored_size, q.swept_at, q.checksum) == [
        ("stored", 111, 0, "sum")
    ]
    assert await wrapped.write(shred_unreadable, "account", ["object"]) == (0, 0)


async def test_an_object_that_a_key_opens_is_not_shredded(wrapped: Database) -> None:
    await wrapped.write(_erase)
    assert await wrapped.write(shred_unreadable, "account", ["object"]) == (0, 0)
    assert await _rows(wrapped, blob_objects.c.state) == [("live",)]


def _erase(tx: Connection) -> None:
    """Erase the wrap under `key`."""
    k = blob_object_keys
    where = k.c.kms_key_id == text("'key'")
    tx.execute(Statement(k.update().where(where).values(wrapped_data_key=text("NULL"))))


_QUARANTINED = (
    *list(quarantined_object_keys.columns)[:2],
    quarantined_object_keys.c.wrapped_data_key,
)


async def test_a_swept_object_takes_its_keys_along(condemned: Database) -> None:
    assert await condemned.write(collection.sweep, "account", ["object"], 1) == 1
    assert await _rows(condemned, blob_object_keys.c.object_id) == []
    assert await _rows(condemned, *_QUARANTINED) == [("object", "key", b"wrapped")]


async def test_the_keys_in_quarantine_go_with_their_object(condemned: Database) -> None:
    await condemned.write(collection.sweep, "account", ["object"], 1)
    (swept,) = await condemned.read(collection.list_recoverable, "account", "sha256:layer")
    assert (swept.stored_id, swept.checksum) == ("stored", "sum")
    wraps = await condemned.read(collection.quarantined_wraps, "account", "object")
    assert wraps == [Wrap("key", b"wrapped", "enabled")]
    assert await condemned.read(collection.quarantined_wraps, "another", "object") == []
    await condemned.write(collection.release, "account", "object")
    assert await _rows(condemned, *_QUARANTINED) == []

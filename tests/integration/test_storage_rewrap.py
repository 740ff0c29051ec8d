"""What is stored in a bucket moves to its new key, and a deleted key shreds what it alone opens."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Final, TypeVar

import pytest
from sqlalchemy import bindparam

from cloudcore.db.statement import Statement
from cloudcore.events import NO_EVENTS
from cloudcore.jobs.kinds import Done, StepFailed
from cloudcore.objects.wraps import KeyDeleted, KeyDisabled
from cloudcore.storage import buckets
from cloudcore.storage.object_rows import ObjectAttributes
from cloudcore.storage.object_writes import store_object, store_part
from cloudcore.storage.pieces import keys as piece_keys
from cloudcore.storage.pieces import rewrapping
from cloudcore.storage.pieces.cleanup import shred_deleted_keys
from cloudcore.storage.pieces.rows import PIECE_ROWS
from cloudcore.storage.tables import storage_pieces
from tests.databases import on_both_databases
from tests.storage_world import ACME, StorageWorld, body_of

T = TypeVar("T")

LARGE: Final = b"0123456789" * 10_000


@on_both_databases
async def test_all_that_is_stored_moves_to_the_key_and_survives_the_deletion_of_the_other(
    storage: StorageWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrapping, "PORTION", 2)
    first, second = await storage.kms.make("first"), await storage.kms.make("second")
    bucket = await storage.make(kms_key_id=first.id)
    other = await storage.make("other", kms_key_id=first.id)
    for name in ("a", "b", "c"):
        await storage.put(bucket, name, LARGE)
    await storage.put(bucket, "few", b"few")
    upload = await storage.begin(bucket, "parts")
    parts = [await storage.part(bucket, upload, number, b"x") for number in (1, 2, 3)]
    await storage.put(other, "stays", LARGE)
    assert await storage.under(first.id) == (8, 4 * len(LARGE) + 6, 5)
    bound, run = await storage.bind(bucket, second.id)
    ended = await storage.end_rewrap(run)
    assert (ended.done, ended.counts["moved"]) == (7, 7)
    assert await storage.under(first.id) == (1, len(LARGE), 1)
    assert await storage.database.read(piece_keys.bound_buckets, ACME, first.id, 9) == (
        1,
        [(other.id, "other")],
    )
    await storage.kms.delete(first)
    await shred_deleted_keys(storage.needs)
    for name in ("a", "b", "c"):
        assert await storage.get(bound, name) == LARGE
    await storage.complete(bound, upload, parts[0])
    assert await storage.get(bound, "parts") == b"x"
    with pytest.raises(KeyDeleted):
        await storage.get(other, "stays")


async def test_the_move_of_a_bucket_that_is_deleted_meanwhile_fails_for_good(
    storage: StorageWorld,
) -> None:
    bucket, key = await storage.make(), await storage.kms.make("key")
    bound, run = await storage.bind(bucket, key.id)
    job = await storage.last_job()
    await storage.database.write(buckets.BUCKETS.remove, bound, storage.clock())
    with pytest.raises(StepFailed, match="the bucket is gone") as failed:
        await rewrapping.run_step(storage.needs, run, job)
    assert (failed.value.code, failed.value.is_permanent) == ("BUCKET_DELETED", True)


@on_both_databases
async def test_a_deleted_key_shreds_its_pieces_and_their_objects_can_be_deleted(
    storage: StorageWorld,
) -> None:
    key = await storage.kms.make("key")
    bucket = await storage.make(kms_key_id=key.id)
    await storage.put(bucket, "large", LARGE)
    await storage.put(bucket, "few", b"few")
    kept = await storage.put(await storage.make("other"), "kept", LARGE)
    await shred_deleted_keys(storage.needs)
    assert len(await storage.files()) == 2, "nothing is shredded while the key is there"
    await storage.kms.delete(key)
    await shred_deleted_keys(storage.needs)
    assert list(await storage.files()) == [kept.id]
    assert [row.id async for row in PIECE_ROWS.each(storage.database)] == [kept.id]
    for name in ("large", "few"):
        with pytest.raises(KeyDeleted):
            await storage.get(bucket, name)
        await storage.delete(bucket, name)
    bound, run = await storage.bind(bucket, None)
    await storage.put(bound, "large", LARGE)
    assert (await storage.end_rewrap(run)).counts["moved"] == 0
    assert await storage.get(bound, "large") == LARGE


async def test_a_broken_wrap_and_a_closed_key_keep_no_other_piece(
    storage: StorageWorld, caplog: pytest.LogCaptureFixture
) -> None:
    names = ("first", "closed", "last")
    first, closed, last = [await storage.kms.make(name) for name in names]
    bucket = await storage.make(kms_key_id=closed.id)
    await storage.put(bucket, "of the closed key", LARGE)
    bound, _ = await storage.bind(bucket, first.id)
    for name in ("a", "b", "broken"):
        made = await storage.put(bound, name, LARGE)
    await storage.kms.disable(closed)
    other_wrap = storage_pieces.update().where(storage_pieces.c.id == bindparam("of"))
    swap = Statement(other_wrap.values(wrapped=bindparam("wrapped")))
    await storage.database.write(lambda tx: tx.execute(swap, of=made.id, wrapped=bytes(80)))
    bound, run = await storage.bind(bound, last.id)
    counts = (await storage.end_rewrap(run)).counts
    kept = {"plain": 0, "key_disabled": 1, "key_deleted": 0, "unreadable": 1}
    assert counts == {"moved": 2, **kept}
    assert f"no key opens the data key of piece {made.id}" in caplog.text
    assert await storage.get(bound, "b") == LARGE
    with pytest.raises(KeyDisabled):
        await storage.get(bound, "of the closed key")


async def test_a_key_that_is_bound_meanwhile_is_the_one_to_move_to(storage: StorageWorld) -> None:
    first, second = await storage.kms.make("first"), await storage.kms.make("second")
    bucket = await storage.make()
    await storage.put(bucket, "key", LARGE)
    bound, run = await storage.bind(bucket, first.id)
    step = await rewrapping.run_step(storage.needs, run, await storage.last_job())
    assert not isinstance(step, Done)
    assert step.change is not None
    bound, again = await storage.bind(bound, second.id)
    assert again.id == run.id, "one run at a time"
    with pytest.raises(StepFailed) as failure:
        await storage.database.write(step.change)
    assert not failure.value.is_permanent
    assert (await storage.end_rewrap(run)).counts["moved"] == 1
    assert (await storage.under(second.id))[0] == 1
    await storage.kms.disable(second)
    with pytest.raises(StepFailed) as failure:
        await rewrapping.run_step(storage.needs, run, await storage.last_job())
    assert failure.value.is_permanent


@pytest.mark.parametrize("is_part", [False, True])
async def test_what_is_sent_while_its_bucket_moves_to_another_key_is_stored_under_that(
    storage: StorageWorld, is_part: bool
) -> None:
    first, second = await storage.kms.make("first"), await storage.kms.make("second")
    bucket = await storage.make(kms_key_id=first.id)
    upload = await storage.begin(bucket, "parts")
    inner = body_of(LARGE)

    async def body(sink: Callable[[memoryview], None], finish: Callable[[bool], T], /) -> T:
        _, run = await storage.bind(bucket, second.id)
        await storage.end_rewrap(run)
        return await inner(sink, finish)

    if is_part:
        piece = await store_part(storage.needs, bucket, upload.id, 1, body)
        made = await storage.complete(bucket, upload, piece)
    else:
        made = await store_object(storage.needs, NO_EVENTS, bucket, "one", ObjectAttributes(), body)
    assert await storage.under(first.id) == (0, 0, 0)
    await storage.kms.delete(first)
    await shred_deleted_keys(storage.needs)
    assert await storage.get(bucket, made.key) == LARGE


def test_to_find_what_deleted_keys_sealed_reads_no_other_piece(sqlite_database: str) -> None:
    with closing(sqlite3.connect(sqlite_database.removeprefix("sqlite:///"))) as connection:
        for each in (piece_keys._CLOSED_KEY, piece_keys._LIST_CLOSED):
            text = f"EXPLAIN QUERY PLAN {each.sqlite}"
            plan = [row[3] for row in connection.execute(text, {"limit": 1, "kms_key_id": ""})]
            assert not [detail for detail in plan if detail.startswith("SCAN storage_")], plan

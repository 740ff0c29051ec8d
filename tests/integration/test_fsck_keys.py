"""fsck tells when data keys are not where they must be, or do not open; on both databases."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
from sqlalchemy import bindparam, text

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.keyring import Keyring
from cloudcore.kms.providers import EmbeddedProvider
from cloudcore.kms.rows import kms_key_versions
from registry.blobstore.base import DataKey
from registry.errors import StoreUnavailable
from registry.gc.fsck import FsckReport, check
from registry.metadata.tables import blob_object_keys, blob_objects, repository_blobs
from registry.services.data_keys import DataKeys
from registry.services.storage_usage import measure_account
from tests.databases import on_both_databases
from tests.integration.sealed_world import SealedWorld, make_sealed_world
from tests.memory_store import MemoryStore
from tests.tenants import Install

DATA: Final = b"a layer of some hundred bytes. " * 100
_k = blob_object_keys
_UNBIND_LINKS: Final = Statement(repository_blobs.update().values(kms_key_id=text("NULL")))
_ERASE: Final = Statement(_k.update().values(wrapped_data_key=text("NULL")))
_SHRED: Final = Statement(blob_objects.update().values(state=text("'shredded'")))
_PLAIN: Final = Statement(blob_objects.update().values(encoding=text("'plain'")))
_UNLINK: Final = Statement(repository_blobs.delete())
_SPOIL_MATERIAL: Final = Statement(
    kms_key_versions.update()
    .where(kms_key_versions.c.key_id == bindparam("of"))
    .values(wrapped_material=bindparam("spoilt"))
)


@pytest.fixture
async def world(install: Install) -> AsyncIterator[SealedWorld]:
    """Return an install with a sealed blob."""
    async with install.connect() as docker:
        world = await make_sealed_world(install, docker)
        assert (await world.push("red", DATA)).status_code == 201
        yield world


async def fsck(world: SealedWorld, data_keys: DataKeys | None = None) -> FsckReport:
    """Check all, with the keys of the install, or others."""
    ctx = world.install.ctx
    store: Any = ctx.reader
    data_keys = data_keys or ctx.data_keys
    return await check(ctx.database, store, lambda _: None, clock=ctx.clock, data_keys=data_keys)


async def problems(world: SealedWorld) -> list[str]:
    """Return what fsck finds about keys."""
    found = (await fsck(world)).violations
    assert all(each.invariant == "I7" for each in found), found
    return [each.problem for each in found]


async def change(world: SealedWorld, *statements: Statement) -> None:
    """Do what nothing of ours ever does."""

    def run(tx: Connection) -> None:
        for statement in statements:
            tx.execute(statement)

    await world.install.database.write(run)


async def test_that_no_root_key_is_at_hand_is_told_where_blobs_need_it(world: SealedWorld) -> None:
    ctx = world.install.ctx
    store: Any = ctx.reader

    report = await fsck(world)
    assert (report.violations, report.opened_count, report.untried) == ([], 1, "")

    async def untried() -> str:
        return (await check(ctx.database, store, lambda _: None, clock=ctx.clock)).untried

    assert "there is no root key" in await untried()
    await change(world, _UNBIND_LINKS, Statement(_k.delete()), _PLAIN)
    assert await untried() == ""


async def test_a_key_whose_provider_is_away_is_no_fault(world: SealedWorld) -> None:
    away = world.with_providers(EmbeddedProvider(Keyring(b"another root key" * 2)))
    report = await fsck(world, away)
    assert report.violations == []
    assert "root key" in report.untried


async def test_a_key_whose_material_is_damaged_is_told_and_others_are_tried(
    world: SealedWorld,
) -> None:
    key, last = await world.make_bound_key("mine", "blue"), os.urandom(100)
    for repository, data in (("blue", os.urandom(100)), ("blue", os.urandom(100)), ("red", last)):
        assert (await world.push(repository, data)).status_code == 201
    ((object_id, *_),) = await world.objects(last)
    await world.spoil(object_id, await world.platform_key(), bytes(60))
    of = {"of": key.id, "spoilt": bytes(60)}
    await world.install.database.write(lambda tx: tx.execute(_SPOIL_MATERIAL, **of))
    anew = world.with_providers(EmbeddedProvider(world.install.keyring))
    report = await fsck(world, anew)
    found = [each.problem for each in report.violations]
    assert len(found) == 2, found
    assert any(f"the material of its KMS key {key.id} does not open" in each for each in found)
    assert any("its data key under" in each for each in found)
    assert report.untried == ""


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        ([_UNBIND_LINKS], "a link does not name a key"),
        ([_ERASE], "no wrapped data key is left"),
        ([_SHRED], "still has bytes"),
        ([_UNLINK, _SHRED], "nothing needs it"),
        ([_PLAIN], "it is plain, and has a wrapped data key"),
    ],
)
async def test_what_does_not_fit_together_is_told(
    world: SealedWorld, statements: list[Statement], words: str
) -> None:
    await change(world, *statements)
    assert any(words in each.problem for each in (await fsck(world)).violations)


@on_both_databases
async def test_a_key_that_nothing_needs_is_told(world: SealedWorld) -> None:
    other = await world.make_key("other")
    ((object_id, *_),) = await world.objects(DATA)
    (wrapped,) = (await world.wraps(object_id)).values()
    row = {
        "object_id": object_id,
        "kms_key_id": other.id,
        "account_id": world.account.id,
        "wrapped_data_key": wrapped,
    }
    add = Statement(_k.insert().values({name: bindparam(name) for name in row}))
    await world.install.database.write(lambda tx: tx.execute(add, **row))
    found = await problems(world)
    assert any("nothing reads it through" in each for each in found)
    assert any(f"under the KMS key {other.id} does not open" in each for each in found)


async def test_a_wrap_that_does_not_open_is_told(world: SealedWorld) -> None:
    ((object_id, *_),) = await world.objects(DATA)
    key = await world.platform_key()
    wrapped = (await world.wraps(object_id))[key.id]
    await world.spoil(object_id, key, wrapped[:-1] + bytes([wrapped[-1] ^ 1]))
    (problem,) = await problems(world)
    assert problem == f"its data key under the KMS key {key.id} does not open"
    assert wrapped.hex() not in problem


async def test_a_data_key_of_other_bytes_is_told(world: SealedWorld) -> None:
    ((object_id, stored_id, *_),) = await world.objects(DATA)
    key = await world.platform_key()
    data_keys = world.install.ctx.data_keys
    assert data_keys is not None
    other = data_keys.new(world.account.id)
    wrapped = await data_keys.wrap(world.account.id, key.id, stored_id, other)
    await world.spoil(object_id, key, wrapped)
    (problem,) = await problems(world)
    assert "opens, but not the bytes" in problem
    assert other.plaintext.hex() not in problem


async def test_damaged_bytes_are_no_fault_of_their_data_key(world: SealedWorld) -> None:
    store = world.install.ctx.reader
    assert isinstance(store, MemoryStore)
    files = store.files.objects
    ((_, stored_id, *_),) = await world.objects(DATA)
    whole = files[stored_id]
    for damaged in (whole[:-1], whole[:50] + bytes(len(whole) - 50)):
        files[stored_id] = damaged
        report = await fsck(world)
        assert [each.invariant for each in report.violations] == ["I1, I5"]
        assert (report.damaged_count, report.opened_count) == (1, 1)


async def test_bytes_that_cannot_be_read_are_no_fault_of_their_data_key(
    world: SealedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = world.install.ctx.reader
    assert isinstance(store, MemoryStore)
    opens = store.files.open

    def fail(stored_id: str, size: int | None, data_key: DataKey | None = None) -> object:
        if data_key is not None:  # without it, the bytes are hashed
            raise StoreUnavailable(stored_id)
        return opens(stored_id, size, data_key)

    monkeypatch.setattr(store.files, "open", fail)
    report = await fsck(world)
    assert [each for each in report.violations if each.invariant == "I7"] == []
    assert report.opened_count == 1


async def test_a_disabled_key_is_not_tried(world: SealedWorld) -> None:
    key = await world.make_bound_key("mine", "blue")
    await world.push("blue", os.urandom(100))
    await world.disable(key)
    report = await fsck(world)
    assert (report.violations, report.opened_count) == ([], 1)


@on_both_databases
async def test_storage_counts_retired_and_shredded_blobs(world: SealedWorld) -> None:
    key = await world.make_bound_key("mine", "red")
    await world.push("red", DATA)
    await world.disable(key)
    await world.push("blue", DATA)
    assert [row[3] for row in await world.objects(DATA)].count(True) == 1
    assert len(await world.objects(DATA)) == 2
    database, now = world.install.database, world.install.clock()
    usage, _ = await measure_account(database, world.account.id, now)
    sizes = Statement(blob_objects.select().with_only_columns(blob_objects.c.stored_size))
    rows = await database.read(lambda tx: tx.rows(sizes))
    assert usage.stored_bytes == sum(row[0] for row in rows)

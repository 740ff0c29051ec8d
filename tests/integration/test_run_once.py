"""An action that several workers ask for at the same time runs once."""

from __future__ import annotations

import asyncio

import pytest

from cloudcore.clock import uuid7
from cloudcore.db.base import Database
from cloudcore.keyring import Keyring
from cloudcore.web import idempotency
from cloudcore.web.idempotency import RunOnce
from tests.databases import on_both_databases
from tests.inprocess import ManualClock

pytestmark = on_both_databases


def worker(database: Database) -> RunOnce:
    return RunOnce(database, Keyring(bytes(32)), ManualClock(), uuid7)


async def test_all_get_the_outcome_of_one(database: Database) -> None:
    ran = 0
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def act() -> bytes:
        nonlocal ran
        ran += 1
        begun.set()
        await may_end.wait()
        return b"outcome %d" % ran

    first = asyncio.create_task(worker(database)("ann", "renew", "key", act))
    await begun.wait()
    second = asyncio.create_task(worker(database)("ann", "renew", "key", act))
    may_end.set()
    assert await first == await second == b"outcome 1"
    assert await worker(database)("ann", "renew", "key", act) == b"outcome 1"
    assert await worker(database)("bob", "renew", "key", act) == b"outcome 2"
    assert await worker(database)("ann", "renew", "next", act) == b"outcome 3"


async def test_one_that_raised_is_run_anew(database: Database) -> None:
    async def fail() -> bytes:
        raise RuntimeError("refused")

    async def act() -> bytes:
        return b"outcome"

    with pytest.raises(RuntimeError, match="refused"):
        await worker(database)("ann", "renew", "key", fail)
    assert await worker(database)("ann", "renew", "key", act) == b"outcome"


async def test_one_that_does_not_end_is_not_waited_for(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "_LOOKS", 2)
    monkeypatch.setattr(idempotency, "_PAUSE_SECONDS", 0)
    begun = asyncio.Event()

    async def hang() -> bytes:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def act() -> bytes:
        raise AssertionError

    first = asyncio.create_task(worker(database)("ann", "renew", "key", hang))
    await begun.wait()
    assert await worker(database)("ann", "renew", "key", act) is None
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)

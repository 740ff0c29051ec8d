"""The generations a database remembers, on both databases."""

from __future__ import annotations

from typing import Final

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db.base import Database
from registry.metadata.collector import generations
from tests.databases import on_both_databases

pytestmark = on_both_databases

DAY: Final = 24 * 3600 * MICROSECONDS
NOW: Final = 1_750_000_000 * MICROSECONDS


async def test_one_follows_another_that_is_known(database: Database) -> None:
    first, second, foreign = (uuid7(NOW + number) for number in range(3))
    assert await database.write(generations.follow, None, first, NOW)
    assert await database.write(generations.follow, first, second, NOW)
    assert not await database.write(generations.follow, foreign, uuid7(NOW), NOW)
    assert await database.read(generations.is_known, first)
    assert await database.read(generations.is_known, second)
    assert not await database.read(generations.is_known, foreign)
    assert await database.read(generations.newest_owner) == ""


async def test_what_the_store_noted_last_is_never_forgotten(database: Database) -> None:
    """However long nothing ran, and though the store may still name the one before the last."""

    names = [uuid7(NOW + number * DAY * 1000) for number in range(3)]
    noted = None
    for number, name in enumerate(names):
        assert await database.write(generations.follow, noted, name, NOW + number * 400 * DAY)
        noted = name
    assert [await database.read(generations.is_known, name) for name in names] == [
        False,
        True,
        True,
    ]


async def test_an_acceptance_is_remembered(database: Database) -> None:
    assert await database.read(generations.accepted_at) == 0
    await database.write(generations.accept, uuid7(NOW), NOW)
    await database.write(generations.accept, accepted := uuid7(NOW), NOW + DAY)
    assert await database.read(generations.accepted_at) == NOW + DAY
    assert await database.write(generations.follow, accepted, uuid7(NOW), NOW + 400 * DAY)
    assert await database.write(generations.follow, accepted, uuid7(NOW), NOW + 401 * DAY)
    assert await database.read(generations.accepted_at) == NOW + DAY

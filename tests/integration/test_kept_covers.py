"""Answers whose proofs have a cover are confirmed by one read of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import pytest

from cloudcore.clock import system_clock
from cloudcore.db.base import Connection, Database
from cloudcore.serving.kept.cache import KeptAnswers
from cloudcore.serving.kept.entry import Cover, Keep, Proof
from cloudcore.serving.record import RequestRecord
from tests.databases import add_account, opened

RECORD: Final = RequestRecord(0, 0, "the-id", "GET", b"/", b"", 200, 0, 0, "", 0)
HEADS: Final = (b"0", b"1", b"2")


class World:
    """Three kept answers, what their proofs find, and which reads were made."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.kept = KeptAnswers(database, system_clock, 10**6)
        self.revision: int | None = 1
        self.looked: list[str] = []
        self.found = dict.fromkeys(HEADS, "same")
        cover = Cover(self.look_at_all, ())
        for head in HEADS:
            proof = Proof(self.look_at_one, (head,), "same", cover)
            until = system_clock() + 10**9
            self.kept.keep(head, Keep(until, proof), b"", b"the-id" + head, RECORD, None)
        self.commits = 0

    def look_at_all(self, _: Connection) -> int | None:
        self.looked.append("all")
        return self.revision

    def look_at_one(self, _: Connection, head: bytes) -> str:
        self.looked.append(head.decode())
        return self.found[head]

    async def commit(self) -> None:
        """Commit something that no proof depends on."""
        self.commits += 1
        await self.database.write_relaxed(add_account, f"a{self.commits}")

    def prove(self, *heads: bytes) -> list[bool]:
        """Prove answers; return which were."""
        self.looked.clear()
        proven = []
        for head in heads:
            entry = self.kept.find(head)
            assert entry is not None
            proven.append(self.kept.prove(head, entry) is True)
        return proven


@pytest.fixture
async def world(sqlite_database: str) -> AsyncIterator[World]:
    async with opened(sqlite_database) as database:
        made = World(database)
        assert all(made.prove(*HEADS))
        assert made.looked == ["all", "0", "all", "1", "all", "2"]
        yield made


async def test_a_commit_elsewhere_costs_one_read_for_all(world: World) -> None:
    await world.commit()
    assert all(world.prove(*HEADS, *HEADS))
    assert world.looked == ["all"]


async def test_when_the_cover_differs_each_is_looked_at(world: World) -> None:
    world.revision, world.found[HEADS[1]] = 2, "another"
    await world.commit()
    assert world.prove(*HEADS) == [True, False, True]
    assert [each for each in world.looked if each != "all"] == ["0", "1", "2"]
    await world.commit()
    assert all(world.prove(HEADS[0], HEADS[2]))
    assert world.looked == ["all"]


async def test_an_answer_that_was_not_asked_for_meanwhile_is_looked_at(world: World) -> None:
    world.revision = 2
    await world.commit()
    assert world.prove(HEADS[0]) == [True]
    world.found[HEADS[1]] = "another"
    await world.commit()
    assert world.prove(HEADS[0], HEADS[1]) == [True, False]


async def test_what_is_not_there_proves_nothing(world: World) -> None:
    world.revision = None
    for _ in range(2):
        await world.commit()
        world.prove(HEADS[0])
        assert "0" in world.looked

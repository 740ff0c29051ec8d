"""Blobs of one repository are confirmed by one read after a commit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from typing import Concatenate, Final, cast

import pytest

from cloudcore.clock import system_clock
from cloudcore.db.base import Connection, Database, P, T
from cloudcore.serving.kept.cache import KeptAnswers
from cloudcore.serving.kept.entry import Keep, Proof
from cloudcore.serving.record import RequestRecord
from registry.oci.digest import Digest, digest_of
from registry.oci.reference import Name
from registry.services.blobs import reading
from registry.settings.groups import Limits
from tests.databases import add_account, on_both_databases, opened
from tests.inprocess import open_registry
from tests.memory_store import MemoryStore
from tests.wired import wired

RECORD: Final = RequestRecord(0, 0, "the-id", "GET", b"/", b"", 200, 0, 0, "", 0)
HEADS: Final = (b"0", b"1", b"2")
BLOBS: Final = (b"one", b"two", b"three")


class Gate:
    """A database whose reads wait, as those of PostgreSQL do, until they are let through."""

    def __init__(self, database: Database) -> None:
        self.version = database.version
        self._read = database.read
        self.is_open = asyncio.Event()
        self.is_open.set()

    async def read(
        self, query: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Read once the gate is open."""
        if not self.is_open.is_set():
            await self.is_open.wait()
        return await self._read(query, *args, **kwargs)


class World:
    """Three kept answers, what their proofs find, and which reads were made."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.gate = Gate(database)
        self.kept = KeptAnswers(cast("Database", self.gate), system_clock, 10**6)
        self.looked: list[str] = []
        self.found = dict.fromkeys(HEADS, "same")
        for head in HEADS:
            self.keep(head)
        self.commits = 0

    def keep(self, head: bytes) -> None:
        """Keep the answer to a head."""
        proof = Proof(self.look_at_one, ("all", head), "same", together=self.look_at_some)
        until = system_clock() + 10**9
        self.kept.keep(head, Keep(until, proof), b"", b"the-id" + head, RECORD, None)

    def look_at_one(self, _: Connection, group: str, head: bytes) -> str | None:
        assert group == "all"
        self.looked.append(head.decode())
        return self.found.get(head)

    def look_at_some(
        self, _: Connection, group: str, heads: Sequence[bytes]
    ) -> Mapping[Hashable, Hashable]:
        assert group == "all"
        self.looked.append("+".join(sorted(head.decode() for head in heads)))
        return {head: self.found[head] for head in heads if head in self.found}

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
    """Return answers that were given, and so are read together after the next commit."""
    async with opened(sqlite_database) as database:
        made = World(database)
        assert all(made.prove(*HEADS))
        assert made.looked == ["0", "1", "2"]
        yield made


async def test_a_commit_elsewhere_costs_one_read_for_all(world: World) -> None:
    for _ in range(3):
        await world.commit()
        assert all(world.prove(*HEADS, *HEADS))
        assert world.looked == ["0+1+2"]


async def test_one_that_differs_is_not_given_and_the_others_are(world: World) -> None:
    world.found[HEADS[1]] = "another"
    await world.commit()
    assert world.prove(*HEADS) == [True, False, True]
    assert world.looked == ["0+1+2", "1"]
    assert world.kept.find(HEADS[1]) is None


async def test_one_that_is_gone_is_not_given(world: World) -> None:
    del world.found[HEADS[0]]
    await world.commit()
    assert world.prove(*HEADS) == [False, True, True]
    assert world.looked == ["0+1+2"]


async def test_one_that_nobody_asked_for_is_looked_at_once_more_and_then_alone(
    world: World,
) -> None:
    await world.commit()
    assert all(world.prove(HEADS[0], HEADS[1]))
    assert world.looked == ["0+1+2"]
    await world.commit()
    world.found[HEADS[2]] = "another"
    assert world.prove(*HEADS) == [True, True, False]
    assert world.looked == ["0+1", "2"]


async def test_of_those_not_given_lately_each_read_takes_twice_as_many(world: World) -> None:
    heads = [b"%d" % number for number in range(10)]
    world.found |= dict.fromkeys(heads, "same")
    for head in heads[3:]:
        world.keep(head)
    assert all(world.prove(*heads))
    for looked in ("0+1+2+3+4+5+6+7+8+9", "0"):
        await world.commit()
        assert world.prove(heads[0]) == [True]
        assert world.looked == [looked]
    assert all(world.prove(*heads[1:]))
    assert world.looked == ["1", "2+9", "3+7+8", "4+5+6"]


async def test_one_that_differs_is_taken_together_with_others_once(world: World) -> None:
    heads = [b"%d" % number for number in range(10)]
    world.found |= dict.fromkeys(heads, "same")
    for head in heads[3:]:
        world.keep(head)
    assert all(world.prove(*heads))
    for _ in range(2):
        await world.commit()
        assert world.prove(heads[0]) == [True]
    world.found[heads[9]] = "another"
    assert all(world.prove(*heads[1:9]))
    assert world.looked == ["1", "2+9", "3+7+8", "4+5+6"]
    assert world.prove(heads[9]) == [False]


async def test_one_that_was_dropped_is_not_looked_at(world: World) -> None:
    world.keep(HEADS[2])  # in the place of the one before
    await world.commit()
    assert world.prove(HEADS[0]) == [True]
    assert world.looked == ["0+1"]


async def begin(world: World, *heads: bytes) -> list[asyncio.Future[bool]]:
    """Begin to prove answers after a commit; they wait for the gate."""
    await world.commit()
    world.looked.clear()
    world.gate.is_open.clear()
    begun: list[asyncio.Future[bool]] = []
    for head in heads:
        entry = world.kept.find(head)
        assert entry is not None
        proven = world.kept.prove(head, entry)
        assert not isinstance(proven, bool)
        begun.append(asyncio.ensure_future(proven))
    await asyncio.sleep(0)
    return begun


async def test_who_asks_while_the_read_waits_waits_for_it(world: World) -> None:
    begun = await begin(world, *HEADS, *HEADS)
    world.gate.is_open.set()
    assert await asyncio.gather(*begun) == [True] * 6
    assert world.looked == ["0+1+2"]
    assert world.kept.take_counts() == (0, 9, 3)


async def test_one_that_differs_is_looked_at_alone_by_who_waited(world: World) -> None:
    world.found[HEADS[1]] = "another"
    begun = await begin(world, *HEADS)
    world.gate.is_open.set()
    assert await asyncio.gather(*begun) == [True, False, True]
    assert world.looked == ["0+1+2", "1"]


async def test_whoever_waits_is_answered_if_the_one_that_began_leaves(world: World) -> None:
    first, *others = await begin(world, *HEADS)
    first.cancel()
    world.gate.is_open.set()
    assert await asyncio.gather(*others) == [True, True]
    assert world.looked == ["0+1+2"]


async def test_who_asks_after_another_commit_does_not_wait_for_the_read_before(
    world: World,
) -> None:
    begun = await begin(world, HEADS[0])
    await world.commit()
    entry = world.kept.find(HEADS[1])
    assert entry is not None
    proven = world.kept.prove(HEADS[1], entry)
    assert not isinstance(proven, bool)
    world.found[HEADS[1]] = "another"
    world.gate.is_open.set()
    assert await proven is False
    assert await begun[0] is True


@on_both_databases
async def test_each_look_finds_what_the_look_at_one_does(metadata_url: str) -> None:
    async with open_registry(metadata_url, MemoryStore(), limits=Limits()) as registry:
        for blob in BLOBS[:2]:
            push = f"/v2/dev/app/blobs/uploads/?digest={digest_of(blob)}"
            assert (await registry.client.request("POST", push, blob)).status == 201
        name, digests = Name("dev", "app"), [Digest(digest_of(blob)) for blob in BLOBS]
        read = registry.ctx.database.read
        alone = [await read(reading.look_at_blob, name, digest) for digest in digests]
        found = await read(reading.look_at_blobs, name, digests)
        assert [found.get(digest) for digest in digests] == alone
        assert alone[2] is None
        assert alone[0] not in (None, alone[1])


@on_both_databases
async def test_a_deleted_blob_is_gone_and_the_others_are_given_again(metadata_url: str) -> None:
    async with (
        open_registry(metadata_url, MemoryStore(), limits=Limits()) as registry,
        wired(registry.app, registry.ctx) as client,
    ):
        paths = [f"/v2/dev/app/blobs/{digest_of(blob)}" for blob in BLOBS]
        for blob, path in zip(BLOBS, paths, strict=True):
            push = f"/v2/dev/app/blobs/uploads/?digest={digest_of(blob)}"
            assert (await registry.client.request("POST", push, blob)).status == 201
            assert (await client.request("GET", path)).body == blob
        assert (await registry.client.request("DELETE", paths[1])).status == 202
        answers = [await client.request("GET", path) for path in paths]
        assert [each.status for each in answers] == [200, 404, 200]

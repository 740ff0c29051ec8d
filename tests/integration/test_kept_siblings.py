"""After a commit, kept answers of one repository share the reads that prove them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from typing import Final

import pytest

from cloudcore.clock import system_clock
from cloudcore.db.base import Connection, Database
from cloudcore.serving.kept_answers import MOST_TOGETHER, AnswerProof, KeepTerms, KeptAnswers
from cloudcore.serving.request_record import RequestRecord
from registry.oci.digest import Digest, digest_of
from registry.oci.reference import Name
from registry.services.blobs import reading
from registry.settings.groups import Limits
from tests.databases import add_account, on_both_databases, opened
from tests.inprocess import open_registry
from tests.memory_store import MemoryStore
from tests.wired import wired

RECORD: Final = RequestRecord(0, 0, "the-id", "GET", b"/", b"", 200, 0, 0, "", 0)
BLOBS: Final = (b"one", b"two", b"three")


class World:
    """Kept answers, what their proofs find, and which reads were made."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.kept = KeptAnswers(database, system_clock, 10**6)
        self.revision: int | None = 1
        self.looked: list[str] = []
        self.found: dict[str, str] = {}
        self.commits = 0

    def keep(self, head: str, proof: AnswerProof) -> None:
        """Keep the answer to a head."""
        self.found[head] = "same"
        until = system_clock() + 10**9
        body = b"the-id" + head.encode()
        self.kept.keep(head.encode(), KeepTerms(until, proof), b"", body, RECORD, None)

    def keep_with_revision(self, *heads: str) -> None:
        """Keep answers that a shared revision proves, as those for manifests."""
        for head in heads:
            self.keep(head, AnswerProof(self.look, ("app", head), "same", self.find_revision))

    def keep_with_many(self, *heads: str) -> None:
        """Keep answers that are looked at together, as those for blobs."""
        for head in heads:
            proof = AnswerProof(self.look, ("app", head), "same", read_many=self.read_many)
            self.keep(head, proof)

    def find_revision(self, _: Connection, repository: str) -> int | None:
        self.looked.append(repository)
        return self.revision

    def look(self, _: Connection, repository: str, head: str) -> str | None:
        assert repository == "app"
        self.looked.append(head)
        return self.found.get(head)

    def read_many(
        self, _: Connection, repository: str, heads: Sequence[str]
    ) -> Mapping[Hashable, Hashable]:
        assert repository == "app"
        self.looked.append("+".join(sorted(heads)))
        return {head: self.found[head] for head in heads if head in self.found}

    async def commit(self) -> None:
        """Commit something that no proof depends on."""
        self.commits += 1
        await self.database.write_relaxed(add_account, f"a{self.commits}")

    def prove(self, *heads: str) -> list[bool]:
        """Prove answers; return which are proved."""
        self.looked.clear()
        proven = []
        for head in heads:
            entry = self.kept.find(head.encode())
            assert entry is not None
            proven.append(self.kept.prove(head.encode(), entry) is True)
        return proven


@pytest.fixture
async def world(sqlite_database: str) -> AsyncIterator[World]:
    async with opened(sqlite_database) as database:
        yield World(database)


async def test_a_commit_elsewhere_costs_one_read_of_the_revision(world: World) -> None:
    world.keep_with_revision("a", "b", "c")
    assert all(world.prove("a", "b", "c"))
    assert world.looked == ["app", "a", "b", "c"]
    await world.commit()
    assert all(world.prove("a", "b", "c", "a"))
    assert world.looked == ["app"]
    assert world.kept.take_counts() == (1, 6, 3)


async def test_when_the_revision_differs_each_answer_is_looked_at(world: World) -> None:
    world.keep_with_revision("a", "b", "c")
    world.prove("a", "b", "c")
    world.revision, world.found["b"] = 2, "another"
    await world.commit()
    assert world.prove("a", "b", "c") == [True, False, True]
    assert world.looked == ["app", "a", "b", "c"]
    await world.commit()
    assert all(world.prove("a", "c"))
    assert world.looked == ["app"]


async def test_an_answer_of_an_older_revision_is_looked_at(world: World) -> None:
    world.keep_with_revision("a", "b")
    world.prove("a", "b")
    world.revision = 2
    await world.commit()
    assert world.prove("a") == [True]
    world.found["b"] = "another"
    await world.commit()
    assert world.prove("a", "b") == [True, False]
    world.revision = None  # a repository without one proves nothing
    for _ in range(2):
        await world.commit()
        assert world.prove("a") == [True]
        assert world.looked == ["app", "a"]


async def test_a_commit_elsewhere_costs_one_read_of_all_that_were_sent(world: World) -> None:
    world.keep_with_many("a", "b", "c")
    assert all(world.prove("a", "b", "c"))
    assert world.looked == ["a", "b", "c"]
    for _ in range(2):
        await world.commit()
        assert all(world.prove("a", "b", "c", "a"))
        assert world.looked == ["a+b+c"]
    await world.commit()
    assert world.prove("b") == [True]
    await world.commit()
    assert world.prove("b", "a") == [True, True]
    assert world.looked == ["a+b"]  # one was sent since the commit before, so one other is taken


async def test_one_of_many_that_differs_is_not_sent_and_the_others_are(world: World) -> None:
    world.keep_with_many("a", "b", "c")
    world.prove("a", "b", "c")
    world.found["b"] = "another"
    del world.found["c"]
    await world.commit()
    assert world.prove("a", "b", "c") == [True, False, False]
    assert world.looked == ["a+b+c", "b", "c"]
    assert world.kept.find(b"b") is None


async def test_one_that_was_dropped_is_not_looked_at(world: World) -> None:
    world.keep_with_many("a", "b", "c")
    world.prove("a", "b", "c")
    world.keep_with_many("c")  # in the place of the one before
    await world.commit()
    assert world.prove("a") == [True]
    assert world.looked == ["a+b"]


async def test_a_read_proves_a_bounded_number_of_answers(world: World) -> None:
    heads = [f"h{number}" for number in range(MOST_TOGETHER + 10)]
    world.keep_with_many(*heads)
    world.prove(*heads)
    await world.commit()
    assert all(world.prove(*heads))
    assert sorted(1 + each.count("+") for each in world.looked) == [10, MOST_TOGETHER]


@on_both_databases
async def test_what_is_found_of_many_blobs_is_what_is_found_of_each(metadata_url: str) -> None:
    async with open_registry(metadata_url, MemoryStore(), limits=Limits()) as registry:
        for blob in BLOBS[:2]:
            push = f"/v2/dev/app/blobs/uploads/?digest={digest_of(blob)}"
            assert (await registry.client.request("POST", push, blob)).status == 201
        name, digests = Name("dev", "app"), [Digest(digest_of(blob)) for blob in BLOBS]
        read = registry.ctx.database.read
        alone = [await read(reading.read_blob_state, name, digest) for digest in digests]
        found = await read(reading.read_blob_states, name, digests)
        assert [found.get(digest) for digest in digests] == alone
        assert alone[2] is None
        assert alone[0] not in (None, alone[1])


@on_both_databases
async def test_a_deleted_blob_is_gone_and_the_others_are_sent_again(metadata_url: str) -> None:
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

"""What is kept, for whom, how long, and what is counted and logged of it."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import msgspec
import pytest
from sqlalchemy import bindparam, select

from cloudcore.db.base import Database
from cloudcore.db.statement import Statement
from cloudcore.serving.counters import Counters
from cloudcore.serving.kept_answers import KeepTerms, KeptAnswers
from cloudcore.serving.logs import AccessLog, access_line
from cloudcore.serving.request_record import RequestRecord
from registry.composition.planes import PLANES
from registry.metadata.tables import repositories
from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_MANIFEST
from registry.settings.groups import Limits
from tests.databases import on_both_databases
from tests.inprocess import Registry, open_registry
from tests.memory_store import MemoryStore
from tests.recount import querying
from tests.wired import WireClient, wired

BLOB: Final = b"a small blob"
MANIFEST: Final = json.dumps(
    {
        "schemaVersion": 2,
        "config": {"mediaType": "application/x", "digest": digest_of(BLOB), "size": len(BLOB)},
        "layers": [],
    }
).encode()
BY_TAG: Final = "/v2/dev/app/manifests/v1"
TAGS: Final = "/v2/dev/app/tags/list"
_REVISION: Final = Statement(select(repositories.c.revision))
_SET_REVISION: Final = Statement(repositories.update().values(revision=bindparam("number")))


@pytest.fixture
async def registry(metadata_url: str) -> AsyncIterator[Registry]:
    """Return a registry with an image."""
    async with open_registry(metadata_url, MemoryStore(), limits=Limits()) as made:
        push = f"/v2/dev/app/blobs/uploads/?digest={digest_of(BLOB)}"
        assert (await made.client.request("POST", push, BLOB)).status == 201
        kind = {"content-type": OCI_MANIFEST}
        assert (await made.client.request("PUT", BY_TAG, MANIFEST, kind)).status == 201
        yield made


@pytest.fixture
async def client(registry: Registry) -> AsyncIterator[WireClient]:
    """Return a client of a server that keeps answers."""
    async with wired(registry.app, registry.ctx) as made:
        yield made


def counts(client: WireClient) -> tuple[int, int, int]:
    """Return the hits, the confirmed and the missed since the last call."""
    assert client.kept is not None
    return client.kept.take_counts()


@on_both_databases
async def test_the_same_again_comes_from_memory(client: WireClient) -> None:
    of_image = [f"/v2/dev/app/{each}/{digest_of(MANIFEST)}" for each in ("manifests", "referrers")]
    for path in ("/v2/", BY_TAG, TAGS, f"/v2/dev/app/blobs/{digest_of(BLOB)}", *of_image):
        for method in ("GET", "HEAD"):
            first = await client.ask(method, path)
            assert counts(client) == (0, 0, 1)
            again = [await client.ask(method, path) for _ in range(3)]
            hits, confirmed, missed = counts(client)
            assert (hits + confirmed, missed) == (3, 0), (method, path)
            ids = {each.headers.pop("x-request-id") for each in (first, *again)}
            assert len(ids) == 4
            for each in (first, *again):
                each.headers.pop("date", None)
                assert each == first


async def test_what_is_not_kept_and_what_is_another_request(client: WireClient) -> None:
    for path in ("/v2/dev/app/manifests/none", "/v2/_catalog", "/v2/dev/none/tags/list"):
        await client.request("GET", path)
    await client.request("GET", BY_TAG, headers={"connection": "close"})
    await client.request("GET", BY_TAG, b"a body")
    await client.request("GET", BY_TAG, headers={"expect": "100-continue"})
    await client.request("GET", BY_TAG, headers={"x-long": "a" * 9000})
    assert counts(client) == (0, 0, 0)
    await client.ask("GET", BY_TAG)
    await client.ask("GET", BY_TAG, headers={"authorization": "Bearer x"})
    assert counts(client) == (0, 0, 2)


async def test_no_answer_outlives_its_time(registry: Registry, client: WireClient) -> None:
    assert client.kept is not None
    await client.ask("GET", BY_TAG)
    registry.clock.advance(301)
    await client.ask("GET", BY_TAG)
    assert counts(client) == (0, 0, 2)
    client.kept.drop_ended()
    assert client.kept.bytes > 0
    registry.clock.advance(301)
    client.kept.drop_ended()
    assert client.kept.bytes == 0, "it leaves the memory unasked"


async def test_a_head_of_an_unused_blob_is_not_kept_past_its_touch(
    registry: Registry, client: WireClient
) -> None:
    other = b"used by no manifest"
    push = f"/v2/dev/app/blobs/uploads/?digest={digest_of(other)}"
    await client.request("POST", push, other)
    path = f"/v2/dev/app/blobs/{digest_of(other)}"
    registry.clock.advance(registry.ctx.limits.touch_after_seconds - 60)
    await client.ask("HEAD", path)
    registry.clock.advance(120)
    await client.ask("HEAD", path)
    assert counts(client) == (0, 0, 2)


@on_both_databases
async def test_a_pull_counts_each_time(
    registry: Registry, client: WireClient, metadata_url: str
) -> None:
    for _ in range(3):
        await client.ask("GET", BY_TAG)
        await client.ask("HEAD", BY_TAG)
    await registry.ctx.pulls.flush()
    with querying(metadata_url) as query:
        assert [tuple(row) for row in query("SELECT pulls FROM repository_days")] == [(3,)]


async def test_records_and_lines_are_as_without(client: WireClient, tmp_path: Path) -> None:
    answers = [await client.ask("GET", BY_TAG) for _ in range(4)]
    assert [each.request_id for each in client.records] == [
        each.headers["x-request-id"] for each in answers
    ]
    first, *again = client.records
    for each in again:
        same = each._replace(finished_at=0, seconds=0, request_id="", cache=None)
        assert same == first._replace(finished_at=0, seconds=0, request_id="")
    written = tmp_path / "log"
    log = AccessLog(PLANES, os.open(written, os.O_WRONLY | os.O_CREAT))
    for each in client.records:
        log(each)
    log.start()
    log.close()
    expected = [msgspec.json.encode(access_line(each, PLANES)) for each in client.records]
    assert written.read_bytes().splitlines() == expected


async def test_counts_are_as_without(registry: Registry) -> None:
    counters = Counters(1, PLANES)
    counter = counters.counter(0)
    async with wired(registry.app, registry.ctx, counter) as client:
        for _ in range(4):
            await client.ask("GET", BY_TAG)
    assert client.kept is not None
    counter.publish(0, client.kept)
    totals = counters.totals("data")
    assert totals.requests == {("GET", "2xx"): 4}
    assert sum(totals.durations) == 4
    assert totals.sent == 4 * len(MANIFEST)
    assert counters.kept["missed"] == 1
    assert counters.kept["hit"] + counters.kept["confirmed"] == 3
    assert counters.kept_bytes == client.kept.bytes > 0


async def test_memory_is_bounded_and_counted(database: Database) -> None:
    """What was used least recently goes; equal answers are one; path and query count."""
    record = RequestRecord(0, 0, "the-id", "GET", b"/", b"", 200, 0, 0, "", 0)
    keep = KeepTerms(10**9)
    heads = [b"head %d" % n for n in range(9)]
    kept = KeptAnswers(database, lambda: 0, 13_000)
    for n, head in enumerate(heads):
        kept.keep(head, keep, b"", b"the-id %d" % n, record, None)
        kept.find(heads[0])
        assert 0 < kept.bytes <= 13_000
    assert [n for n, head in enumerate(heads) if kept.find(head)] == [0, 6, 7, 8]
    kept = KeptAnswers(database, lambda: 0, 10**6)
    for head in heads:
        kept.keep(head, keep, b"", b"the-id " + b"a" * 50_000, record, None)
    assert kept.bytes < 80_000
    kept = KeptAnswers(database, lambda: 0, 10**6)
    long = record._replace(path=b"p" * 2000, query=b"q" * 2000)
    kept.keep(b"h" * 4000, keep, b"", b"the-id ", long, None)
    assert kept.bytes > 10_000


async def test_pipelined_requests_are_answered_in_turn(client: WireClient) -> None:
    await client.ask("GET", BY_TAG)
    await client.ask("GET", BY_TAG)
    reader, writer = await client.connect()
    head = f"GET {BY_TAG} HTTP/1.1\r\nhost: registry.example\r\n\r\n".encode()
    writer.write(head * 5)
    for _ in range(5):
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200")
        assert await reader.readexactly(len(MANIFEST)) == MANIFEST
    writer.close()


@on_both_databases
async def test_a_tag_that_gets_another_digest_of_the_same_image_is_seen(
    registry: Registry, client: WireClient
) -> None:
    kind = {"content-type": OCI_MANIFEST}
    for tag in ("v2", "v3"):  # each changes the repository, so the tag is looked at again
        await client.ask("GET", BY_TAG)
        path = f"/v2/dev/app/manifests/{tag}"
        assert (await registry.client.request("PUT", path, MANIFEST, kind)).status == 201
    other = digest_of(MANIFEST, "sha512")
    path = f"/v2/dev/app/manifests/{other}?tag=v1"
    for digest in (digest_of(MANIFEST), other):
        assert (await client.ask("GET", BY_TAG)).headers["docker-content-digest"] == digest
        assert (await registry.client.request("PUT", path, MANIFEST, kind)).status == 201


@on_both_databases
async def test_a_revision_that_is_given_again_is_another(
    registry: Registry, client: WireClient
) -> None:
    other, kind = MANIFEST.replace(b"[]", b"[ ]"), {"content-type": OCI_MANIFEST}
    (number,) = await registry.ctx.database.read(lambda tx: tx.rows(_REVISION))
    await client.ask("GET", BY_TAG)
    await client.ask("GET", TAGS)
    registry.clock.advance(1)
    for path in (BY_TAG, "/v2/dev/app/manifests/v2"):
        assert (await registry.client.request("PUT", path, other, kind)).status == 201
    # As after the fail-over to a replica that lacked the last commits.
    await registry.ctx.database.write(lambda tx: tx.execute(_SET_REVISION, number=number[0]))
    assert (await client.ask("GET", BY_TAG)).body == other
    assert (await client.ask("GET", TAGS)).json()["tags"] == ["v1", "v2"]

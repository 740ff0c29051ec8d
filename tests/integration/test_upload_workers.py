"""One upload, several requests at once, on two workers over the same rows and files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

from registry.blobstore.disk.store import FilesystemStore
from registry.gc.purge import discard_expired_uploads
from registry.oci.digest import ALGORITHMS, digest_of
from registry.services.context import ServiceContext
from tests.databases import on_both_databases
from tests.inprocess import Answer, Client, Held, ManualClock, hang_up, open_registry
from tests.recount import object_ids, querying

UPLOADS = "/v2/dev/app/blobs/uploads/"
ONE = b"one " * 100
TWO = b"two " * 100


@dataclass(frozen=True)
class Pair:
    """Two workers on one database and one folder of blobs, and the store of the first."""

    first: Client
    second: Client
    clock: ManualClock
    contexts: tuple[ServiceContext, ServiceContext]
    store: FilesystemStore


@pytest.fixture
async def pair(metadata_url: str, tmp_path: Path) -> AsyncIterator[Pair]:
    clock, folder = ManualClock(), tmp_path / "blobs"
    with closing(FilesystemStore(folder)) as one, closing(FilesystemStore(folder)) as other:
        async with (
            open_registry(metadata_url, one, clock=clock) as first,
            open_registry(metadata_url, other, clock=clock) as second,
        ):
            yield Pair(first.client, second.client, clock, (first.ctx, second.ctx), one)


async def start(client: Client, query: str = "") -> str:
    answer = await client.request("POST", UPLOADS + query)
    assert answer.status == 202
    return answer.headers["location"]


async def test_an_upload_goes_on_and_ends_on_another_worker(pair: Pair) -> None:
    for algorithm, hint in product(ALGORITHMS, (None, *ALGORITHMS)):
        location = await start(pair.first, f"?digest-algorithm={hint}" if hint else "")
        whole = f"{algorithm} {hint}".encode() + ONE + TWO
        for client, at in ((pair.second, 0), (pair.first, 100)):
            place = {"content-range": f"{at}-{at + 99}"}
            part = whole[at : at + 100]
            assert (await client.request("PATCH", location, part, place)).status == 202
        digest = digest_of(whole, algorithm)
        answer = await pair.second.request("PUT", f"{location}?digest={digest}", whole[200:])
        assert (answer.status, answer.headers["docker-content-digest"]) == (201, digest)
        found = await pair.first.request("GET", answer.headers["location"])
        assert found.body == whole


@on_both_databases
async def test_of_two_chunks_at_once_one_is_taken(pair: Pair) -> None:
    location = await start(pair.first)
    body = Held(ONE, TWO)
    under_way = asyncio.create_task(pair.first.request("PATCH", location, aiter(body)))
    await body.begun.wait()
    for client in (pair.first, pair.second):
        for method in ("PATCH", "PUT", "DELETE"):
            target = location + (f"?digest={digest_of(ONE)}" if method == "PUT" else "")
            refused = await client.request(method, target, ONE)
            assert refused.status == 409
            assert refused.codes == ["BLOB_UPLOAD_INVALID"]
            assert refused.headers["retry-after"] == "1"
        progress = await client.request("GET", location)
        assert progress.headers["range"] == "0-0"
    body.go_on.set()
    assert (await under_way).headers["range"] == f"0-{len(ONE + TWO) - 1}"
    late = await pair.second.request("PATCH", location, ONE, {"content-range": f"0-{len(ONE) - 1}"})
    assert late.status == 416
    assert late.headers["range"] == f"0-{len(ONE + TWO) - 1}"
    digest = digest_of(ONE + TWO)
    assert (await pair.second.request("PUT", f"{location}?digest={digest}")).status == 201


@on_both_databases
async def test_of_many_requests_at_one_offset_one_is_taken(pair: Pair) -> None:
    for turn in range(3):
        location = await start(pair.first)
        place = {"content-range": f"0-{len(ONE) - 1}"}
        answers = await asyncio.gather(
            *(
                client.request("PATCH", location, ONE, place)
                for client in (pair.first, pair.second) * 4
            )
        )
        statuses = sorted(answer.status for answer in answers)
        assert statuses[0] == 202
        assert set(statuses[1:]) <= {409, 416}
        data = ONE + bytes([turn])
        digest = digest_of(data)
        puts = await asyncio.gather(
            *(
                client.request("PUT", f"{location}?digest={digest}", bytes([turn]))
                for client in (pair.first, pair.second) * 4
            )
        )
        assert sorted(answer.status for answer in puts)[0] == 201
        # The others met the writer, or the end of the session.
        assert {answer.status for answer in puts} <= {201, 404, 409}
        assert [answer.status for answer in puts].count(201) == 1
        found = await pair.second.request("GET", f"/v2/dev/app/blobs/{digest}")
        assert found.body == data


async def test_what_came_before_a_client_left_stays(pair: Pair) -> None:
    location = await start(pair.first)
    await pair.first.request("PATCH", location, hang_up(ONE))
    assert (await pair.second.request("GET", location)).headers["range"] == (f"0-{len(ONE) - 1}")
    digest = digest_of(ONE + TWO)
    await pair.second.request("PUT", f"{location}?digest={digest}", hang_up(TWO[:10]))
    received = len(ONE) + 10
    answer = await pair.first.request("GET", location)
    assert answer.headers["range"] == f"0-{received - 1}"
    answer = await pair.first.request("PUT", f"{location}?digest={digest}", TWO[10:])
    assert answer.status == 201


async def test_a_monolithic_push_cut_short_leaves_nothing(pair: Pair) -> None:
    digest = digest_of(ONE)
    answer = await pair.first.request("POST", f"{UPLOADS}?digest={digest}", hang_up(ONE))
    assert answer.codes == ["SIZE_INVALID"]
    assert list(pair.store.files.list_staged()) == []
    assert list(pair.store.files.list_objects()) == []


@on_both_databases
async def test_an_idle_session_ends_with_its_bytes(pair: Pair) -> None:
    location = await start(pair.first)
    other = await start(pair.first)
    for one in (location, other):
        assert (await pair.first.request("PATCH", one, ONE)).status == 202
    pair.clock.advance(23 * 3600)
    assert (await pair.second.request("PATCH", other, TWO)).status == 202
    pair.clock.advance(2 * 3600)
    for method in ("GET", "PATCH", "DELETE"):
        gone = await pair.second.request(method, location)
        assert gone.codes == ["BLOB_UPLOAD_UNKNOWN"]
    body = Held(ONE, TWO)
    writing = asyncio.create_task(pair.first.request("PATCH", other, aiter(body)))
    await body.begun.wait()
    assert await discard_expired_uploads(pair.contexts[1]) == 1
    pair.clock.advance(25 * 3600)
    writer = pair.contexts[0]
    await writer.leases.renew(writer.database, writer.clock)
    assert await discard_expired_uploads(pair.contexts[1]) == 0, "someone is writing to it"
    body.go_on.set()
    assert (await writing).status == 202
    assert (await pair.second.request("GET", other)).status == 204
    assert len(list(pair.store.files.list_staged())) == 1
    pair.clock.advance(25 * 3600)
    assert await discard_expired_uploads(pair.contexts[0]) == 1
    assert await discard_expired_uploads(pair.contexts[0]) == 0
    assert list(pair.store.files.list_staged()) == []


async def test_the_same_bytes_at_once_are_kept_once(database_url: str, pair: Pair) -> None:
    digest = digest_of(ONE)

    async def push(client: Client, name: str) -> Answer:
        return await client.request("POST", f"/v2/dev/{name}/blobs/uploads/?digest={digest}", ONE)

    answers = await asyncio.gather(
        *(
            push(client, name)
            for name in ("a", "b", "c", "a", "b")
            for client in (pair.first, pair.second)
        )
    )
    assert {answer.status for answer in answers} == {201}
    for name in ("a", "b", "c"):
        found = await pair.second.request("GET", f"/v2/dev/{name}/blobs/{digest}")
        assert found.body == ONE
    with querying(database_url) as query:
        kept = object_ids(query)
    assert len(kept) == 1
    assert {one.object_id for one in pair.store.files.list_objects()} == kept

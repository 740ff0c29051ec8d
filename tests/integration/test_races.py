"""Writers at once, on both databases: counters stay right, and a race ends as some order would."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_INDEX, OCI_MANIFEST
from tests.inprocess import Answer, Client, ManualClock, Registry, open_registry
from tests.memory_store import MemoryStore
from tests.recount import check_counters, object_ids, querying
from tests.wired import wired

BLOBS = [bytes([n]) * (n + 1) for n in range(6)]
KIND = {"content-type": OCI_MANIFEST}


PAIRS = [
    pytest.param(
        (database, door),
        id=f"{database}-{door}",
        marks=pytest.mark.postgresql if database == "postgresql" else (),
    )
    for database, door in (
        ("sqlite", "direct"),
        ("postgresql", "server"),
        ("sqlite", "server"),
        ("postgresql", "direct"),
    )
]
"""Databases, and how workers are asked: directly or through our HTTP server, which keeps answers.

Most tests run with the first two pairs; the cheap ones run with all.
"""
with_all_pairs = pytest.mark.parametrize("setup", PAIRS, indirect=True)


@pytest.fixture(params=PAIRS[:2])
def setup(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Return the URL of a database, and how its workers are asked."""
    database, door = request.param
    return request.getfixturevalue(f"{database}_database"), door


@pytest.fixture
async def workers(setup: tuple[str, str]) -> AsyncIterator[list[Registry]]:
    """Return four workers, each with connections and threads of its own; count rows at the end."""
    url, door = setup
    store, clock = MemoryStore(), ManualClock()
    async with AsyncExitStack() as stack:
        opened = [open_registry(url, store, clock=clock) for _ in range(4)]
        made = [await stack.enter_async_context(one) for one in opened]
        if door == "server":
            clients = [await stack.enter_async_context(wired(one.app, one.ctx)) for one in made]
            made = [replace(one, client=its) for one, its in zip(made, clients, strict=True)]
        yield made
    with querying(url) as query:
        check_counters(query, "dev")


def image(*contents: bytes, note: str = "") -> bytes:
    config, *layers = (
        {"mediaType": "application/x", "digest": digest_of(data), "size": len(data)}
        for data in contents
    )
    document = {"schemaVersion": 2, "config": config, "layers": layers}
    return json.dumps({**document, "annotations": {"note": note}}).encode()


async def push(client: Client, data: bytes, name: str = "app") -> Answer:
    path = f"/v2/dev/{name}/blobs/uploads/?digest={digest_of(data)}"
    return await client.request("POST", path, data)


async def put(client: Client, reference: str, body: bytes, **headers: str) -> Answer:
    kind = KIND | {name.replace("_", "-"): value for name, value in headers.items()}
    return await client.request("PUT", f"/v2/dev/app/manifests/{reference}", body, kind)


async def random_writer(client: Client, seed: int, turns: int) -> Counter[int]:
    """Put and delete at random; return how often each status came."""
    rng = random.Random(seed)
    statuses: Counter[int] = Counter()
    for _ in range(turns):
        body = image(*rng.sample(BLOBS, 3), note=rng.choice("ab"))
        digest = digest_of(body)
        tag = rng.choice(["v1", "v2", "v3"])
        base = "/v2/dev/app"
        match rng.randrange(7):
            case 0 | 1:
                answer = await put(client, tag, body)
            case 2:
                answer = await put(client, f"{digest}?tag=v1&tag=v2", body)
            case 3:
                answer = await client.request("DELETE", f"{base}/manifests/{digest}")
            case 4:
                answer = await client.request("DELETE", f"{base}/manifests/{tag}")
            case 5:
                blob = digest_of(rng.choice(BLOBS))
                answer = await client.request("DELETE", f"{base}/blobs/{blob}")
            case _:
                answer = await push(client, rng.choice(BLOBS))
        statuses[answer.status] += 1
    return statuses


async def test_counters_are_right_after_four_writers(workers: list[Registry]) -> None:
    for data in BLOBS:
        assert (await push(workers[0].client, data)).status == 201
    counts = await asyncio.gather(
        *(random_writer(one.client, seed, 60) for seed, one in enumerate(workers))
    )
    total = sum(counts, Counter[int]())
    assert set(total) <= {201, 202, 404, 405}
    assert min(total[201], total[202]) > 10


@with_all_pairs
async def test_an_immutable_tag_never_moves(workers: list[Registry]) -> None:
    """Images that are there show the lock: counting a new one locks the repository's row too."""
    client = workers[0].client
    await workers[0].add_immutable("app")
    await push(client, BLOBS[0])
    for turn, are_there in enumerate((False, True, True)):
        bodies = [image(BLOBS[0], note=f"{turn} {n}") for n in range(24)]
        for body in bodies if are_there else ():
            assert (await put(client, digest_of(body), body)).status == 201
        answers = await asyncio.gather(
            *(put(workers[n % 4].client, f"tag-{turn}", body) for n, body in enumerate(bodies))
        )
        (winner,) = (n for n, answer in enumerate(answers) if answer.status == 201)
        for answer in answers[:winner] + answers[winner + 1 :]:
            assert (answer.status, answer.codes) == (409, ["DENIED"])
        found = await client.request("GET", f"/v2/dev/app/manifests/tag-{turn}")
        assert found.body == bodies[winner]


async def test_of_many_who_make_a_tag_if_it_is_new_one_does(workers: list[Registry]) -> None:
    await push(workers[0].client, BLOBS[0])
    bodies = [image(BLOBS[0], note=str(n)) for n in range(20)]
    answers = await asyncio.gather(
        *(
            put(workers[n % 4].client, "v1", body, if_none_match="*")
            for n, body in enumerate(bodies)
        )
    )
    statuses = Counter(answer.status for answer in answers)
    assert statuses == {201: 1, 412: 19}


@with_all_pairs
async def test_compare_and_swap_loses_no_move(workers: list[Registry]) -> None:
    """Move a tag from each link of a chain to the next, everyone trying every link."""
    await push(workers[0].client, BLOBS[0])
    bodies = [image(BLOBS[0], note=str(n)) for n in range(9)]
    digests: list[str] = [digest_of(body) for body in bodies]
    assert (await put(workers[0].client, "v1", bodies[0])).status == 201

    async def mover(client: Client) -> int:
        moved = 0
        while True:
            answer = await client.request("HEAD", "/v2/dev/app/manifests/v1")
            at = digests.index(answer.headers["docker-content-digest"])
            if at == len(bodies) - 1:
                return moved
            answer = await put(client, "v1", bodies[at + 1], if_match=answer.headers["etag"])
            assert answer.status in (201, 412)
            moved += answer.status == 201

    moves = await asyncio.gather(*(mover(one.client) for one in workers))
    assert sum(moves) == len(bodies) - 1


async def test_the_same_image_at_once_is_one(
    workers: list[Registry], setup: tuple[str, str]
) -> None:
    answers = await asyncio.gather(*(push(one.client, BLOBS[0]) for one in workers * 5))
    assert {answer.status for answer in answers} == {201}
    body = image(BLOBS[0])
    answers = await asyncio.gather(*(put(one.client, "v1", body) for one in workers * 5))
    assert {answer.status for answer in answers} == {201}
    with querying(setup[0]) as query:
        assert len(object_ids(query)) == 1
        assert query("SELECT image_count, tag_count FROM repositories") in ([(1, 1)], ((1, 1),))


async def test_a_mount_races_with_the_deletion_of_its_source(workers: list[Registry]) -> None:
    for turn in range(10):
        data = b"turn %d" % turn
        digest = digest_of(data)
        await push(workers[0].client, data, "source")
        mount = f"/v2/dev/target/blobs/uploads/?mount={digest}&from=dev/source"
        deleted, *mounted = await asyncio.gather(
            workers[0].client.request("DELETE", f"/v2/dev/source/blobs/{digest}"),
            *(one.client.request("POST", mount) for one in workers[1:]),
        )
        assert deleted.status == 202
        assert {answer.status for answer in mounted} <= {201, 202}
        found = await workers[1].client.request("GET", f"/v2/dev/target/blobs/{digest}")
        is_mounted = 201 in {answer.status for answer in mounted}
        assert (found.status == 200) == is_mounted
        assert found.body == data or not is_mounted


async def test_a_blob_is_not_deleted_under_a_manifest(workers: list[Registry]) -> None:
    for turn in range(10):
        data = b"turn %d" % turn
        await push(workers[0].client, data)
        stored, deleted = await asyncio.gather(
            put(workers[0].client, f"v{turn}", image(data)),
            workers[1].client.request("DELETE", f"/v2/dev/app/blobs/{digest_of(data)}"),
        )
        assert (stored.status, deleted.status) in {(201, 405), (404, 202)}


async def test_a_child_is_not_deleted_under_an_index(workers: list[Registry]) -> None:
    await push(workers[0].client, BLOBS[0])
    for turn in range(10):
        child = image(BLOBS[0], note=str(turn))
        digest = digest_of(child)
        await put(workers[0].client, digest, child)
        listed = {"mediaType": OCI_MANIFEST, "digest": digest, "size": len(child)}
        body = json.dumps({"schemaVersion": 2, "manifests": [listed]}).encode()
        stored, deleted = await asyncio.gather(
            put(workers[0].client, f"v{turn}", body, content_type=OCI_INDEX),
            workers[1].client.request("DELETE", f"/v2/dev/app/manifests/{digest}"),
        )
        assert (stored.status, deleted.status) in {(201, 405), (404, 202)}


@pytest.mark.parametrize("what", ["blobs", "manifests"])
async def test_of_many_who_delete_one_thing_one_does(workers: list[Registry], what: str) -> None:
    body = image(BLOBS[0])
    for _ in range(5):
        await push(workers[0].client, BLOBS[0])
        if what == "manifests":
            await put(workers[0].client, "v1", body)
        digest = digest_of(body if what == "manifests" else BLOBS[0])
        answers = await asyncio.gather(
            *(one.client.request("DELETE", f"/v2/dev/app/{what}/{digest}") for one in workers * 2)
        )
        statuses = Counter(answer.status for answer in answers)
        assert statuses == {202: 1, 404: 7}

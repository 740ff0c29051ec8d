"""Several ranges of a blob at once, whatever its bytes are stored as, and whoever sends them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import httpx
import pytest

from registry.blobstore.disk.store import FilesystemStore
from registry.distribution.byteranges import MOST_AGAIN, byte_ranges
from registry.oci.digest import digest_of
from tests.inprocess import ZERO_COPY, Client, open_registry
from tests.live_signed_in import SignedIn, serving
from tests.memory_store import MemoryStore

MIB: Final = 1 << 20
CHANCE: Final = random.Random(14)
BLOBS: Final = {
    "random": CHANCE.randbytes(5 * MIB + 12_345),
    "text": b"".join(b"line %d of a text\n" % number for number in range(200_000)),
    "few": CHANCE.randbytes(3000),
}
"""The first is stored as it is, also where the second is compressed; the last is in a row."""
SCATTERED: Final = 1024


class Wanted(NamedTuple):
    """A request for ranges."""

    name: str
    ranges: Sequence[tuple[int, int]]


def wanted() -> Iterator[Wanted]:
    """Yield requests that are answered in parts."""
    for name, blob in BLOBS.items():
        size = len(blob)
        yield Wanted(name, [(0, 10), (size - 10, size)])
        yield Wanted(name, [(100, 200), (200, 300), (300, 301)])
        yield Wanted(name, [(500, 600), (50, 60), (550, 650)])
        if size > MIB:
            yield Wanted(name, [(0, 2 * MIB), (2 * MIB + 1, 3 * MIB), (3 * MIB, 3 * MIB + 5)])
            yield Wanted(name, [(MIB - 3, MIB + 3), (2 * MIB - 3, 2 * MIB + 3)])
            step = size // SCATTERED
            yield Wanted(name, [(at * step, at * step + 100) for at in range(SCATTERED)])
            cuts = sorted(CHANCE.sample(range(size), 60))
            yield Wanted(name, [*pairwise(cuts)][::2])


WANTED: Final = tuple(wanted())


def passes(count: int) -> list[tuple[int, int]]:
    """Return one byte of each MiB of the first blob, all of them so many times."""
    return [(at, at + 1) for at in range(0, len(BLOBS["random"]), MIB)] * count


def header_of(ranges: Sequence[tuple[int, int]]) -> dict[str, str]:
    return {"Range": "bytes=" + ",".join(f"{start}-{stop - 1}" for start, stop in ranges)}


def check(each: Wanted, status: int, headers: Mapping[str, str], body: bytes) -> None:
    """Check an answer to the byte, but for the boundary that it chose."""
    blob = BLOBS[each.name]
    assert status == 206, each
    kind, _, boundary = headers["content-type"].partition("; boundary=")
    assert kind == "multipart/byteranges"
    expected = []
    for start, stop in each.ranges:
        expected.append(
            f"\r\n--{boundary}\r\nContent-Type: application/octet-stream\r\n"
            f"Content-Range: bytes {start}-{stop - 1}/{len(blob)}\r\n\r\n".encode()
        )
        expected.append(blob[start:stop])
    expected.append(f"\r\n--{boundary}--\r\n".encode())
    assert body == b"".join(expected).removeprefix(b"\r\n")
    assert int(headers["content-length"]) == len(body)
    assert headers["docker-content-digest"] == digest_of(blob)
    assert headers["etag"] == f'"{digest_of(blob)}"'
    assert headers["accept-ranges"] == "bytes"


@pytest.fixture(scope="module", params=["on", "off"], ids=["sealed", "plain"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SignedIn]:
    """Return a real ``entrepot serve``, which seals or does not."""
    data = tmp_path_factory.mktemp("ranges") / "data"
    with serving(data, settings=lambda _: {"ENTREPOT_SEALING": request.param}) as signed_in:
        yield signed_in


@pytest.fixture(scope="module")
def docker(server: SignedIn) -> Iterator[httpx.Client]:
    """Return a client whose repository has the blobs."""
    scope = {"scope": "repository:acme/app:pull,push"}
    where = f"{server.registry.url}/v2/token"
    answer = httpx.get(where, params=scope, auth=("token", server.acme.password))
    headers = {"Authorization": f"Bearer {answer.json()['token']}"}
    with httpx.Client(base_url=server.registry.url, headers=headers, timeout=30) as client:
        for blob in BLOBS.values():
            path = f"/v2/acme/app/blobs/uploads/?digest={digest_of(blob)}"
            assert client.post(path, content=blob).status_code == 201
        yield client


def test_the_parts_are_those_that_were_asked_for(docker: httpx.Client) -> None:
    for each in WANTED:
        path = f"/v2/acme/app/blobs/{digest_of(BLOBS[each.name])}"
        answer = docker.get(path, headers=header_of(each.ranges))
        check(each, answer.status_code, answer.headers, answer.content)


def test_ranges_in_any_order_are_parts_if_they_cost_no_more_than_the_whole(
    docker: httpx.Client,
) -> None:
    path, once = f"/v2/acme/app/blobs/{digest_of(BLOBS['random'])}", passes(1)
    for ranges in (once + once[:MOST_AGAIN], once[::-1], [*once[::-1], *once[:MOST_AGAIN]]):
        answer = docker.get(path, headers=header_of(ranges))
        check(Wanted("random", ranges), answer.status_code, answer.headers, answer.content)


def test_ranges_that_cost_more_than_the_whole_are_answered_with_the_whole(
    docker: httpx.Client,
) -> None:
    blob = BLOBS["random"]
    path = f"/v2/acme/app/blobs/{digest_of(blob)}"
    for ranges in (passes(2), passes(5), [(0, 1)] * 11):
        answer = docker.get(path, headers=header_of(ranges))
        assert (answer.status_code, answer.content == blob) == (200, True)


def test_conditions_come_first(docker: httpx.Client) -> None:
    blob = BLOBS["random"]
    path, ranges = f"/v2/acme/app/blobs/{digest_of(blob)}", header_of([(0, 10), (20, 30)])
    for name, value, status in (
        ("If-Range", f'"{digest_of(blob)}"', 206),
        ("If-Range", f'"{digest_of(b"")}"', 200),
        ("If-None-Match", f'"{digest_of(blob)}"', 304),
        ("If-Match", f'"{digest_of(b"")}"', 412),
    ):
        answer = docker.get(path, headers={**ranges, name: value})
        assert answer.status_code == status, name
        assert status != 200 or answer.content == blob
    head = docker.head(path, headers=ranges)
    assert (head.status_code, head.headers["content-length"]) == (200, str(len(blob)))


def test_a_boundary_is_another_each_time() -> None:
    """Else whoever pushes a blob could write it into it, and so the parts of an answer."""
    asked = [(0, 1), (5, 6)]
    assert len({byte_ranges(asked, 10).content_type for _ in range(10)}) == 10


@pytest.mark.parametrize("server_extensions", [{}, ZERO_COPY])
@pytest.mark.parametrize("kind", [MemoryStore, FilesystemStore])
async def test_other_servers_send_the_same(
    sqlite_database: str, tmp_path: Path, server_extensions: Mapping[str, object], kind: type
) -> None:
    store = MemoryStore() if kind is MemoryStore else FilesystemStore(tmp_path)
    async with open_registry(sqlite_database, store) as registry:
        client = Client(registry.app, server_extensions)
        for blob in BLOBS.values():
            path = f"/v2/dev/app/blobs/uploads/?digest={digest_of(blob)}"
            assert (await client.request("POST", path, blob)).status == 201
        for each in WANTED:
            path = f"/v2/dev/app/blobs/{digest_of(BLOBS[each.name])}"
            answer = await client.request("GET", path, headers=header_of(each.ranges))
            check(each, answer.status, answer.headers, answer.body)

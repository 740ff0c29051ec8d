"""The rows of the benchmark: what each does, and whether it belongs to the quick run."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from benchmarks import exchanges
from benchmarks.committer import COMMITS_PER_SECOND
from benchmarks.load import Plan
from benchmarks.polling import Request
from benchmarks.target import GIB, KIB, MIB, TAG_COUNT, Target
from benchmarks.wire import Connection, ExchangeFailedError

SIZES = (4 * KIB, 16 * KIB, 64 * KIB, MIB, 64 * MIB, GIB)
CLIENTS = (1, 4, 16)
MANY = CLIENTS[-1]
MORE_CLIENTS = (2, 8, 32, 64)
"""For the curve of one row."""
BULK_BESIDE = 4
MEMORY_CLIENTS = 16
RANGES = 8


class Unit(Enum):
    """The unit of a row's value."""

    REQUESTS = "req/s"
    MEGABYTES = "MB/s"
    BULK = "bulk MB/s"
    P99 = "p99 ms"
    MEMORY = "MiB"

    @property
    def more_is_better(self) -> bool:
        """Return True for rates, False for costs."""
        return self not in (Unit.P99, Unit.MEMORY)


@dataclass(frozen=True)
class Row:
    """One line of the report; `plan` stores what it needs and returns the plan of the clients."""

    name: str
    unit: Unit
    plan: Callable[[Target], Plan]
    quick: bool = False
    writes: bool = False
    stores: bool = False  # its payload fills the server's disk
    least_bytes: int = 0  # moved at least, whatever the time: one blob for each client

    def rounds(self, asked: int) -> int:
        """Return the number of rounds: fewer if a round is long, or measures a peak."""
        if self.unit is Unit.MEMORY:
            return 1
        if self.least_bytes >= 4 * GIB:
            return min(asked, 2)
        return min(asked, 3) if self.least_bytes >= (64 * MIB if self.writes else GIB) else asked

    def seconds(self, asked: float) -> float:
        """Return the seconds of a round: more for a peak, and for percentiles under load."""
        if self.unit is Unit.MEMORY:
            return max(asked, 2)
        return max(asked, 1) if self.unit in (Unit.P99, Unit.BULK) else asked


def select(*, full: bool) -> list[Row]:
    """Return the rows of the full or the quick run, reads before writes."""
    reads = [*_pulls(), *_ranges(), _memory("pull"), *_small_reads(), *_beside_commits()]
    rows = [*reads, *_tag_pages(), *_beside(), *_writes(), *_pushes(), _memory("push")]
    return [row for row in rows if full or row.quick]


def size_name(size_bytes: int) -> str:
    """Return a size with its unit, as in ``64 KiB``."""
    for unit_bytes, unit in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size_bytes >= unit_bytes:
            return f"{size_bytes // unit_bytes} {unit}"
    return f"{size_bytes} B"


def _pulls() -> Iterator[Row]:
    quick = {(4 * KIB, 1), (4 * KIB, 16), (64 * KIB, 4), (MIB, 4), (GIB, 1)}
    quick |= {(64 * MIB, clients) for clients in CLIENTS}
    for size_bytes, clients in itertools.product(SIZES, CLIENTS):
        yield Row(
            f"blob GET {size_name(size_bytes)} x{clients}",
            Unit.MEGABYTES if size_bytes >= MIB else Unit.REQUESTS,
            _pull_plan(size_bytes, clients),
            quick=(size_bytes, clients) in quick,
            least_bytes=size_bytes * clients,
        )


def _pull_plan(size_bytes: int, clients: int) -> Callable[[Target], Plan]:
    def plan(target: Target) -> Plan:
        if size_bytes >= MIB:
            return Plan([_pull(target, size_bytes, at) for at in range(clients)])
        return Plan(requests=[_blob_requests(target, size_bytes, at) for at in range(clients)])

    return plan


def _blob_heads() -> Iterator[Row]:
    for clients in CLIENTS:
        yield Row(f"blob HEAD 4 KiB x{clients}", Unit.REQUESTS, _blob_head_plan(clients))


def _blob_head_plan(clients: int) -> Callable[[Target], Plan]:
    def plan(target: Target) -> Plan:
        turns = [_blob_requests(target, 4 * KIB, at, "HEAD") for at in range(clients)]
        return Plan(requests=turns)

    return plan


def _pull(target: Target, size_bytes: int, first: int) -> exchanges.Exchange:
    """Return an exchange that pulls the stored blobs of one size in turn, beginning at `first`."""
    requests = _blob_requests(target, size_bytes, first)
    return lambda connection: exchanges.pull(connection, next(requests))


def _blob_requests(
    target: Target, size_bytes: int, first: int, method: str = "GET"
) -> Iterator[Request]:
    paths = [f"/v2/{target.repository}/blobs/{digest}" for digest in target.blobs(size_bytes)]
    return _in_turn(target, method, [(path, size_bytes) for path in paths], first)


def _ranges() -> Iterator[Row]:
    name = f"blob GET 1 GiB in {RANGES} ranges x{RANGES}"
    yield Row(name, Unit.MEGABYTES, _ranges_plan, least_bytes=GIB)


def _ranges_plan(target: Target) -> Plan:
    """Plan clients that each pull a part of one blob."""
    path = f"/v2/{target.repository}/blobs/{target.blobs(GIB)[0]}"
    part = GIB // RANGES
    with target.connect() as connection:
        requests = [
            Request(
                connection.request("GET", path, f"Range: bytes={first}-{first + part - 1}"),
                206,
                part,
            )
            for first in range(0, GIB, part)
        ]
    return Plan([_again(request) for request in requests])


def _again(request: Request) -> exchanges.Exchange:
    return lambda connection: exchanges.pull(connection, request)


def _in_turn(
    target: Target, method: str, objects: list[tuple[str, int]], first: int, *headers: str
) -> Iterator[Request]:
    with target.connect() as connection:
        requests = [
            Request(connection.request(method, path, *headers), 200, size, method != "HEAD")
            for path, size in objects
        ]
    first %= len(requests)
    return itertools.cycle(requests[first:] + requests[:first])


def _small_reads() -> Iterator[Row]:
    yield from _blob_heads()
    kinds = itertools.product(("GET", "HEAD"), ("tag", "digest"), CLIENTS)
    for method, by, clients in (*kinds, *(("GET", "tag", each) for each in MORE_CLIENTS)):
        yield Row(
            f"manifest {method} by {by} x{clients}",
            Unit.REQUESTS,
            _manifest_plan(method, by, clients),
            quick=clients == 16 or (method, by, clients) == ("GET", "tag", 1),
        )


def _beside_commits() -> Iterator[Row]:
    kinds = itertools.product(("GET", "HEAD"), ("tag", "digest"))
    plans = {f"manifest {method} by {by}": _manifest_plan(method, by, MANY) for method, by in kinds}
    plans["blob GET 4 KiB"] = _pull_plan(4 * KIB, MANY)
    plans["blob HEAD 4 KiB"] = _blob_head_plan(MANY)
    for name, plan in plans.items():
        row = f"{name} x{MANY} beside {COMMITS_PER_SECOND} commits/s"
        yield Row(row, Unit.REQUESTS, _with_commits(plan))


def _with_commits(plan: Callable[[Target], Plan]) -> Callable[[Target], Plan]:
    """Plan the same while something else commits to a database of ours."""

    def plan_beside(target: Target) -> Plan:
        target.manifest_maker(target.tagged_repository)  # creates it
        return replace(plan(target), beside=target.committing)

    return plan_beside


def _manifest_plan(method: str, by: str, clients: int) -> Callable[[Target], Plan]:
    def plan(target: Target) -> Plan:
        objects = [
            (f"/v2/{target.repository}/manifests/{getattr(stored, by)}", stored.size_bytes)
            for stored in target.manifests()
        ]
        accept = exchanges.ACCEPT_MANIFEST
        turns = [_in_turn(target, method, objects, at * 7, accept) for at in range(clients)]
        return Plan(requests=turns)

    return plan


def _tag_pages() -> Iterator[Row]:
    for length in (100, 1000):
        name = f"tag list, {length} of {TAG_COUNT:,} x1"
        yield Row(name, Unit.REQUESTS, _tag_page_plan(length), quick=True)


def _tag_page_plan(length: int) -> Callable[[Target], Plan]:
    def plan(target: Target) -> Plan:
        target.store_tags()
        path = f"/v2/{target.tagged_repository}/tags/list?n={length}"
        with target.connect() as connection:
            page = exchanges.read(connection, path)
        # Distribution 2.8 answers all tags whatever `n` says: slow, but right.
        if len(json.loads(page)["tags"]) not in (length, TAG_COUNT):
            raise ExchangeFailedError(f"GET {path}: {len(json.loads(page)['tags'])} tags")
        requests = _in_turn(target, "GET", [(path, len(page))], 0)
        return Plan([lambda connection: exchanges.pull(connection, next(requests))])

    return plan


def _beside() -> Iterator[Row]:
    yield Row(f"4 KiB GETs beside {BULK_BESIDE} pulls", Unit.P99, _beside_plan, quick=True)
    yield Row(f"{BULK_BESIDE} pulls beside 4 KiB GETs", Unit.BULK, _beside_plan, quick=True)


def _beside_plan(target: Target) -> Plan:
    bulk = [_pull(target, 64 * MIB, at) for at in range(BULK_BESIDE)]
    return Plan(requests=[_blob_requests(target, 4 * KIB, 0)], background=bulk)


def _writes() -> Iterator[Row]:
    for clients in CLIENTS:
        quick = clients == 4
        name = f"manifest PUT, new image x{clients}"
        yield Row(name, Unit.REQUESTS, _put_plan("images", clients), quick, writes=True)
        name = f"manifest PUT, new tag, first ones x{clients}"
        yield Row(name, Unit.REQUESTS, _put_plan("first", clients), quick, writes=True)
        name = f"manifest PUT, new tag, after {TAG_COUNT:,} x{clients}"
        yield Row(name, Unit.REQUESTS, _put_plan("late", clients), quick, writes=True)


def _put_plan(kind: str, clients: int) -> Callable[[Target], Plan]:
    """Plan PUTs of new images, or of new tags in an empty or a full repository."""

    def plan(target: Target) -> Plan:
        number = target.next_number()
        if kind == "late":
            target.store_tags()
            repository = target.tagged_repository
        else:
            repository = f"{target.namespace}/bench-put-{number}"
        make = target.manifest_maker(repository)
        same = make()
        last = [same]
        counter = itertools.count()

        def put(connection: Connection) -> int:
            tag = f"p{number}-{next(counter)}"
            content = make() if kind == "images" else same
            put_bytes = exchanges.put_manifest(connection, repository, tag, content)
            last[0] = content
            return put_bytes

        return Plan([put] * clients, check=lambda: _check_manifest(target, repository, last[0]))

    return plan


def _check_manifest(target: Target, repository: str, content: bytes) -> None:
    with target.connect() as connection:
        digest = exchanges.digest_of(content)
        path = f"/v2/{repository}/manifests/{digest}"
        exchanges.verify(connection, path, digest, exchanges.ACCEPT_MANIFEST)


def _pushes() -> Iterator[Row]:
    quick = {(4 * KIB, 1), (4 * KIB, 16), (MIB, 4), (64 * MIB, 1), (64 * MIB, 4), (GIB, 1)}
    whole_quick = {(4 * KIB, 4), (64 * MIB, 4)}
    for size_bytes, clients in itertools.product(SIZES, CLIENTS):
        if size_bytes == 64 * KIB:
            continue
        streamed = Row(
            f"blob push {size_name(size_bytes)} x{clients}",
            Unit.MEGABYTES if size_bytes >= MIB else Unit.REQUESTS,
            _push_plan(size_bytes, clients, whole=False),
            quick=(size_bytes, clients) in quick,
            writes=True,
            stores=True,
            least_bytes=size_bytes * clients,
        )
        yield streamed
        yield replace(
            streamed,
            name=f"blob push whole {size_name(size_bytes)} x{clients}",
            plan=_push_plan(size_bytes, clients, whole=True),
            quick=(size_bytes, clients) in whole_quick,
        )


def _push_plan(size_bytes: int, clients: int, *, whole: bool) -> Callable[[Target], Plan]:
    def plan(target: Target) -> Plan:
        target.maker.prepare(size_bytes)
        pushed: list[str] = []
        how = target.push_whole() if whole else exchanges.push_streamed

        def push(connection: Connection) -> int:
            pushed.append(how(connection, target.repository, target.maker, size_bytes))
            return size_bytes

        def check() -> None:
            with target.connect() as connection:
                target.verify_blob(pushed[-1], connection)

        return Plan([push] * clients, check=check)

    return plan


def _memory(direction: str) -> Row:
    """Return the row of the memory during transfers of 1 GiB blobs, which are cut off."""

    def plan(target: Target) -> Plan:
        if direction == "pull":
            moving = [_pull(target, GIB, 0) for _ in range(MEMORY_CLIENTS)]
        else:
            moving = list(_push_plan(GIB, MEMORY_CLIENTS, whole=False)(target).exchanges)
        return Plan([], background=moving)

    return Row(
        f"memory, {MEMORY_CLIENTS} x {direction} of 1 GiB",
        Unit.MEMORY,
        plan,
        quick=True,
        writes=direction == "push",
        stores=direction == "push",
        least_bytes=MEMORY_CLIENTS * GIB,
    )

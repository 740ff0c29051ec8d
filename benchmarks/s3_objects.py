"""Many objects in a bucket: listed, scanned for orphans, collected, and deleted beside load.

    python -m benchmarks.s3_objects many       # 1,000,000 objects of a counting S3 server
    python -m benchmarks.s3_objects deletions  # 100,000 blobs of SeaweedFS, beside clients

*many*: an install on SQLite has rows of all objects but a few, which the scan must find; then the
collector takes all others through all stages, in this process, without rests. The memory of this
process may not grow with the number.

*deletions*: the collector of a served registry removes blobs while two clients push and two pull.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from hashlib import sha256
from os import getpid
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from benchmarks.bodies import BodyMaker
from benchmarks.collector_garbage import SIZE, Blob, rows_of
from benchmarks.collector_load import Clients
from benchmarks.collector_runs import DELAYS, ENVIRONMENT, collect_beside
from benchmarks.counting_s3 import filled_id
from benchmarks.exchanges import expect
from benchmarks.objects import Presigner
from benchmarks.processes import machine, memory_bytes
from benchmarks.report import table
from benchmarks.s3_stub import COUNTED, Stub, counting_s3, seaweedfs
from benchmarks.scale import progress
from benchmarks.scale_data import BLOCK
from benchmarks.scale_site import Site
from benchmarks.scale_stores import SqliteStore
from benchmarks.wire import Connection, ExchangeFailedError
from cloudcore.jobs.runs import end_run
from registry.blobstore.s3.bucket import Bucket
from registry.blobstore.s3.bucket_layout import OBJECTS, object_key
from registry.composition.main import Registry
from registry.composition.stores import RegistryStores
from registry.gc.collection import phases_of
from registry.gc.orphans import find_orphans, places_of
from registry.services.collector_runs import start_collection
from registry.settings.settings import Settings
from tests.s3_servers import BUCKET, KEY_ID, SECRET

GROWTH: Final = 1.1
"""Limit of the peak of memory at the end of a phase, divided by that after a tenth of it."""
PER_MINUTE: Final = 5_000
"""The aim of deletions beside load."""
IMAGES: Final = 2 * BLOCK
ORPHANS: Final = 500
"""Objects without a row."""
_BATCH: Final = 20_000
_PUTTERS: Final = 16
_MIB: Final = 1 << 20


class Phase(NamedTuple):
    """What was done with many objects."""

    name: str
    objects: int
    seconds: float
    early: int
    """Bytes of this process after a tenth."""
    peak: int

    @property
    def is_flat(self) -> bool:
        """Return True if memory did not grow with the number of objects."""
        return self.peak <= GROWTH * self.early


class Meter:
    """Measures a phase; call `sample` as often as something was done."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._begun = time.perf_counter()
        self._samples: list[int] = []

    def sample(self) -> None:
        """Note the memory of this process."""
        self._samples.append(memory_bytes(getpid())["VmRSS"])

    def end(self, count: int) -> Phase:
        """Return what was measured while `count` objects were done."""
        self.sample()
        seconds = time.perf_counter() - self._begun
        early = max(self._samples[: max(1, len(self._samples) // 10)])
        found = Phase(self._name, count, seconds, early, max(self._samples))
        progress(
            f"{found.name}: {found.objects} in {found.seconds:.1f} s, {early} to {found.peak} B"
        )
        return found


async def list_all(process: RegistryStores) -> Phase:
    """List every object."""
    meter, count = Meter("listed"), 0
    async for _ in process.store.list_objects():
        count += 1
        if count % _BATCH == 0:
            meter.sample()
    return meter.end(count)


async def scan_all(process: RegistryStores) -> Phase:
    """Look for orphans in every place, as the scan does within a day."""
    meter, files, orphans = Meter("scanned for orphans"), 0, 0
    for place in places_of(process.store):
        found = await find_orphans(process.ctx, process.store, place)
        files, orphans = files + found.files, orphans + len(found.orphans)
        meter.sample()
    if orphans != ORPHANS:
        raise ExchangeFailedError(f"{orphans} orphans were found, not {ORPHANS}")
    return meter.end(files)


async def collect_all(process: RegistryStores, account_id: str, count: int) -> Sequence[Phase]:
    """Let the collector remove all `count` blobs that no manifest has."""
    ctx, found = process.ctx, []
    run = await ctx.database.write(start_collection, account_id, ctx.new_id(), ctx.change_by(""))
    _, *phases = phases_of(process.store)  # the first removes what earlier runs have swept
    for name, phase in zip(("marked", "swept", "removed"), phases, strict=True):
        meter = Meter(name)
        while await phase(ctx, run):
            meter.sample()
        found.append(meter.end(count))
    await ctx.database.write(end_run, run.id, ctx.clock())
    return found


def add_rows(site: Site, start: int, stop: int) -> None:
    """Add rows of objects that a bucket is filled with, which no manifest has."""
    for first in range(start, stop, _BATCH):
        ids = map(filled_id, range(first, min(stop, first + _BATCH)))
        blobs = [Blob(each, f"sha256:{sha256(each.encode()).hexdigest()}") for each in ids]
        for rows in rows_of(site, blobs):
            site.store.add(rows)


def many(options: argparse.Namespace) -> int:
    """Measure many objects of a counting S3 server."""
    with tempfile.TemporaryDirectory(prefix="s3-many-", dir=options.data) as name:
        folder = Path(name)
        site = Site("many", folder, SqliteStore(folder / "metadata.db"), None)
        with counting_s3(options.objects) as stub:
            site.set_up(IMAGES, IMAGES, IMAGES // 2)
            found = asyncio.run(_many(site, stub, options))
            calls = stub.ask(COUNTED)["calls"]
    lines = [["", "objects", "s", "a second", "MiB after a tenth", "at most", ""]]
    print(table([*lines, *map(_row, found)]))
    print(f"calls of S3: {json.dumps(calls)}")
    return 0 if all(each.is_flat for each in found) else 1


async def _many(site: Site, stub: Stub, options: argparse.Namespace) -> list[Phase]:
    settings = Settings(
        data=site.data, database_url=site.store.url, delays=DELAYS, store=stub.store
    )
    progress("adding the rows")
    add_rows(site, ORPHANS, options.objects)
    async with Registry(settings).open() as process:
        found = [await list_all(process), await scan_all(process)]
        before, garbage = stub.ask(COUNTED)["objects"], options.objects - ORPHANS
        found += await collect_all(process, site.contents.account_id, garbage)
        if before - stub.ask(COUNTED)["objects"] != garbage:
            raise ExchangeFailedError("not all garbage was collected, or more than it")
        return found


def _row(phase: Phase) -> list[str]:
    return [
        phase.name,
        str(phase.objects),
        f"{phase.seconds:.1f}",
        f"{phase.objects / phase.seconds:.0f}",
        f"{phase.early / _MIB:.0f}",
        f"{phase.peak / _MIB:.0f}",
        "" if phase.is_flat else ">",
    ]


def deletions(options: argparse.Namespace) -> int:
    """Measure deletions from SeaweedFS beside clients that push and pull."""
    with (
        tempfile.TemporaryDirectory(prefix="s3-deletions-", dir=options.data) as name,
        seaweedfs(options.data) as weed,
        closing(Bucket(weed.store)) as bucket,
    ):
        folder = Path(name)
        settings = {f"ENTREPOT_{name}": value for name, value in weed.settings.items()}
        database = SqliteStore(folder / "metadata.db")
        site = Site("served", folder, database, None, {**ENVIRONMENT, **settings})
        site.set_up(IMAGES, IMAGES, IMAGES // 2)
        site.start()
        try:
            clients = Clients(site, BodyMaker())
            progress("storing the blobs")
            found = collect_beside(
                site, clients, options.deleted, options.seconds, 1, partial(put_objects, weed.url)
            )
            left = sum(1 for _ in bucket.listed(OBJECTS))
        finally:
            site.stop()
    rate = found.blobs / found.busy.seconds * 60
    print(f"{found.blobs} blobs in {found.busy.seconds:.0f} s, {rate:.0f} a minute, {left} left")
    for kind in ("pushes", "pulls"):
        print(
            f"{kind}: {found.quiet.rate(kind):.0f} a second without a run (p99"
            f" {found.quiet.slowest(kind):.0f} ms), {found.busy.rate(kind):.0f} beside it (p99"
            f" {found.busy.slowest(kind):.0f} ms)"
        )
    return 0 if rate >= PER_MINUTE and not left else 1


def put_objects(url: str, _site: Site, blobs: Sequence[Blob]) -> None:
    """Store the bytes of blobs in the bucket of an S3 server."""
    sign = Presigner(urlsplit(url).port or 80, KEY_ID, SECRET, BUCKET)

    def put(share: Sequence[Blob]) -> None:
        with closing(Connection(url)) as connection:
            for blob in share:
                target = sign("PUT", object_key(blob.id))
                request = connection.request("PUT", target, f"Content-Length: {SIZE}")
                connection.send(request + bytes(SIZE))
                head = connection.head()
                connection.discard(head)
                expect(head, 200, "PUT of an object")

    with ThreadPoolExecutor(_PUTTERS) as pool:
        list(pool.map(put, (blobs[number::_PUTTERS] for number in range(_PUTTERS))))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 1 if an aim is missed or something is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.s3_objects", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("part", choices=("many", "deletions"))
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--deleted", type=int, default=100_000, help="blobs beside load")
    parser.add_argument("--seconds", type=float, default=10, help="of clients without a run")
    parser.add_argument("--data", type=Path, help="folder for the data")
    options = parser.parse_args(argv)
    print(json.dumps(machine()))
    try:
        return {"many": many, "deletions": deletions}[options.part](options)
    except (ExchangeFailedError, OSError) as error:
        print(f"INVALID: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())

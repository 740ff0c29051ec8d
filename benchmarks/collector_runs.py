"""Run the collector in this process or beside clients, and that of CNCF Distribution."""

from __future__ import annotations

import asyncio
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.bodies import BodyMaker
from benchmarks.collector_garbage import (
    Put,
    add_foreign_garbage,
    add_garbage,
    put_files,
    stored_files,
)
from benchmarks.collector_load import BLOB_BYTES, Clients, Window
from benchmarks.exchanges import image_manifest, push_streamed, put_manifest
from benchmarks.processes import cpu_seconds, process_tree
from benchmarks.scale_site import Call, Site
from benchmarks.servers import KINDS, Server
from benchmarks.wire import Connection, ExchangeFailedError
from cloudcore.jobs.runs import end_run
from registry.composition.main import Registry
from registry.gc.collection import phases_of
from registry.services.collector_runs import start_collection
from registry.settings.groups import Delays
from registry.settings.settings import Settings

DELAYS: Final = Delays(gc_condemned_seconds=0, gc_quarantine_seconds=0)
"""One run removes every blob that is due. The grace period stays, so that pushed blobs are not."""
ENVIRONMENT: Final = {
    "ENTREPOT_GC_CONDEMNED_SECONDS": "0",
    "ENTREPOT_GC_QUARANTINE_SECONDS": "0",
}
PUSHERS: Final = 2
PULLERS: Final = 2
_IMAGES: Final = 40
_RUNS: Final = "/v1/garbage-collection/runs"


class Collected(NamedTuple):
    """Seconds that the phases of a run took."""

    mark: float
    sweep: float
    removal: float
    cpu: float
    """Seconds of CPU time of this process and the database server."""


class Beside(NamedTuple):
    """What clients did without a run (`quiet`) and beside one (`busy`)."""

    quiet: Window
    busy: Window
    blobs: int
    """Number of blobs that the run has collected."""

    def slowdown(self, kind: str) -> float:
        """Return the rate without a run divided by that beside it."""
        return self.quiet.rate(kind) / self.busy.rate(kind)


def collect(site: Site, database_pid: int | None, blobs: int) -> Collected:
    """Add `blobs` blobs of garbage to a site, and collect them in this process.

    Raises:
        ExchangeFailedError: fewer blobs were collected, or others.

    """
    before = stored_files(site)
    add_garbage(site, blobs)
    settings = Settings(data=site.data, database_url=site.store.url, delays=DELAYS)
    pids = [] if database_pid is None else process_tree(database_pid)
    cpu = -cpu_seconds(pids) - time.process_time()
    mark, sweep, removal = asyncio.run(_run(settings, site.contents.account_id))
    cpu += cpu_seconds(pids) + time.process_time()
    if stored_files(site) != before:
        raise ExchangeFailedError(f"{site.name}: not all garbage was collected, or more than it")
    return Collected(mark, sweep, removal, cpu)


async def _run(settings: Settings, account_id: str) -> list[float]:
    """Return the seconds of mark, sweep and removal."""
    async with Registry(settings).open() as process:
        ctx, sweeper = process.ctx, process.store
        run = await ctx.database.write(
            start_collection, account_id, ctx.new_id(), ctx.change_by("")
        )
        seconds = []
        for phase in phases_of(sweeper):
            begun = time.perf_counter()
            while await phase(ctx, run):
                pass
            seconds.append(time.perf_counter() - begun)
        await ctx.database.write(end_run, run.id, ctx.clock())
    return seconds[1:]  # the first phase removes what earlier runs have swept: nothing


def collect_beside(
    site: Site, clients: Clients, blobs: int, seconds: float, turn: int, put: Put = put_files
) -> Beside:
    """Let clients push and pull, for `seconds` without a run, and during a run over `blobs` blobs.

    The run comes second if `turn` is odd. `put` stores the bytes of the blobs.
    """
    add_garbage(site, blobs, put)
    found: dict[bool, Window] = {}
    with clients.at_work(PUSHERS, PULLERS):
        time.sleep(1)  # until all clients have begun
        for busy in (False, True) if turn % 2 else (True, False):
            wait = (
                partial(_await_run, site, clients, blobs) if busy else partial(time.sleep, seconds)
            )
            found[busy] = clients.watch(wait)
    return Beside(found[False], found[True], blobs)


def _await_run(site: Site, clients: Clients, blobs: int) -> None:
    run = site.ask_json(Call("POST", _RUNS, b"", status=202))["run"]
    while run["status"] == "running":
        time.sleep(0.1)
        clients.renew()
        run = site.ask_json(Call("GET", f"{_RUNS}/{run['id']}"))["run"]
    if (run["status"], run["removed"]) != ("succeeded", blobs):
        raise ExchangeFailedError(f"the run did not remove {blobs} blobs: {run}")


def collect_foreign(folder: Path, blobs: int) -> float:
    """Return the seconds of Distribution's ``garbage-collect`` over `blobs` blobs.

    Its documentation forbids pushes meanwhile; here it has no clients.

    Raises:
        UnavailableError: it is not installed.
        ExchangeFailedError: it has not removed all of the blobs.

    """
    kind = KINDS["docker-registry"]
    kind.version()
    server = Server(kind, folder, 1)
    server.start()
    try:
        _push_images(server.url)
        data = folder / "data"
        add_foreign_garbage(data, "dev/app", blobs)
        command = ["docker-registry", "garbage-collect", str(folder / "config.json")]
        begun = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        seconds = time.perf_counter() - begun
        stored = data / "docker" / "registry" / "v2" / "blobs" / "sha256"
        left = sum(1 for _ in stored.glob("*/*/data"))
        if left != 3 * _IMAGES:  # a config, a layer and a manifest of each
            raise ExchangeFailedError(f"docker-registry: {left} blobs are left")
    finally:
        server.stop()
    return seconds


def _push_images(url: str) -> None:
    maker = BodyMaker()
    connection = Connection(url)
    for number in range(_IMAGES):
        config, layer = (
            (push_streamed(connection, "dev/app", maker, BLOB_BYTES), BLOB_BYTES) for _ in "cl"
        )
        manifest = image_manifest(config, layer, str(number))
        put_manifest(connection, "dev/app", f"v{number}", manifest)
    connection.close()

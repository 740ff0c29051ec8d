"""Measure the collector: its speed, how much it slows clients, and how it scales.

python -m benchmarks.collector                       # both databases, about ten minutes
python -m benchmarks.collector --database sqlite
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.bodies import BodyMaker
from benchmarks.collector_load import Clients
from benchmarks.collector_runs import (
    ENVIRONMENT,
    Beside,
    Collected,
    collect,
    collect_beside,
    collect_foreign,
)
from benchmarks.processes import machine
from benchmarks.report import number, table
from benchmarks.scale import RESULTS, progress
from benchmarks.scale_data import BLOCK
from benchmarks.scale_site import Site
from benchmarks.scale_stores import SqliteStore, Store, postgresql
from benchmarks.servers import UnavailableError
from benchmarks.wire import ExchangeFailedError

SLOWDOWN: Final = 1.3
"""Limit of the rate of clients without a run, divided by their rate beside a run."""
GROWTH: Final = 1.5
"""Limit of the time of a run in the large registry, divided by that in the small one."""
SMALL: Final = 2 * BLOCK
RUN_BLOBS: Final = 1_000

Open = Callable[[str], Store]


@contextmanager
def opened(database: str, folder: Path) -> Iterator[tuple[Open, int | None]]:
    """Give a function that creates an empty database by name, and the process id of its server."""
    if database == "sqlite":
        yield (lambda name: SqliteStore(folder / name / "metadata.db")), None
        return
    with postgresql() as server:
        yield server.create, server.pid


def beside(site: Site, options: argparse.Namespace) -> list[Beside]:
    """Measure clients without and beside a run, in each round; the first round does not count."""
    site.set_up(SMALL, SMALL, SMALL // 2)
    site.start()
    try:
        clients = Clients(site, BodyMaker())
        found = []
        for turn in range(options.rounds + 1):
            blobs = options.backlog // options.rounds if turn else RUN_BLOBS
            found.append(collect_beside(site, clients, blobs, options.seconds, turn))
            ratios = ", ".join(f"{k} {found[-1].slowdown(k):.2f}" for k in ("pushes", "pulls"))
            progress(f"{site.name}, round {turn}: times fewer beside a run: {ratios}")
        return found[1:]
    finally:
        site.stop()


def by_size(
    sites: Sequence[Site], sizes: Sequence[int], pid: int | None, rounds: int
) -> list[tuple[Collected, ...]]:
    """Collect the same number of blobs in registries of several sizes, in the order A B, B A, ….

    The first round does not count.
    """
    for site, size in zip(sites, sizes, strict=True):
        site.set_up(size, SMALL, SMALL // 2)
        progress(f"{site.name}: filled")
    found = []
    for turn in range(rounds + 1):
        order = sites if turn % 2 else sites[::-1]
        costs = {site.name: collect(site, pid, RUN_BLOBS) for site in order}
        found.append(tuple(costs[site.name] for site in sites))
    return found[1:]


def measure(database: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure on one kind of database; print the results, and return them for the JSON file."""
    sizes = (options.small, options.large)
    with ExitStack() as stack:
        prefix = f"collector-{database}-"
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix, dir=options.data)))
        create, pid = stack.enter_context(opened(database, folder))

        def site(name: str) -> Site:
            return Site(name, folder / name, create(name), pid, ENVIRONMENT)

        windows = beside(site("served"), options)
        costs = by_size([site("small"), site("large")], sizes, pid, options.rounds)
    print(f"\n{database}")
    show_beside(windows)
    show_by_size(costs, sizes)
    return {
        "database": database,
        "beside": [
            {
                "blobs": each.blobs,
                "seconds": each.busy.seconds,
                **{
                    f"{name}_{kind}_per_second": window.rate(kind)
                    for name, window in (("quiet", each.quiet), ("busy", each.busy))
                    for kind in ("pushes", "pulls")
                },
            }
            for each in windows
        ],
        "sizes": sizes,
        "by_size": [[cost._asdict() for cost in turn] for turn in costs],
    }


def show_beside(windows: Sequence[Beside]) -> None:
    """Print the rates and latencies of clients without and beside a run: medians of the rounds."""
    lines = [["clients", "without /s", "beside /s", "times fewer", "p99 ms", "beside", ""]]
    for kind in ("pushes", "pulls"):
        slowdown = median(each.slowdown(kind) for each in windows)
        shown = (
            median(each.quiet.rate(kind) for each in windows),
            median(each.busy.rate(kind) for each in windows),
            slowdown,
            median(each.quiet.slowest(kind) for each in windows),
            median(each.busy.slowest(kind) for each in windows),
        )
        lines.append([kind, *map(number, shown), ">" if slowdown > SLOWDOWN else ""])
    print(table(lines))
    rate = median(each.blobs / each.busy.seconds for each in windows)
    print(f"collected beside them: {number(rate)} blobs a second, all stages\n")


def show_by_size(costs: Sequence[tuple[Collected, ...]], sizes: Sequence[int]) -> None:
    """Print the times of a run in the small and the large registry: medians of the rounds."""
    lines = [[f"{RUN_BLOBS} blobs", *(f"of {size}, ms" for size in sizes), "ratio", ""]]

    def add(name: str, value: Callable[[Collected], float]) -> None:
        small, large = ([value(turn[at]) for turn in costs] for at in (0, 1))
        ratio = median(b / a for a, b in zip(small, large, strict=True))
        shown = (median(small) * 1e3, median(large) * 1e3, ratio)
        lines.append([name, *map(number, shown), ">" if ratio > GROWTH else ""])

    add("mark", lambda cost: cost.mark)
    add("sweep", lambda cost: cost.sweep)
    add("mark and sweep", lambda cost: cost.mark + cost.sweep)
    add("removal", lambda cost: cost.removal)
    add("processor time of all", lambda cost: cost.cpu)
    print(table(lines))
    total = median(cost.mark + cost.sweep + cost.removal for cost, *_ in costs)
    print(f"collected with nobody else at work: {number(RUN_BLOBS / total)} blobs a second")


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Collect the same number of blobs with Entrepot and with CNCF Distribution."""
    ours, theirs = [], []
    with tempfile.TemporaryDirectory(prefix="collector-peer-", dir=options.data) as name:
        folder = Path(name)
        site = Site("ours", folder / "ours", SqliteStore(folder / "ours" / "metadata.db"), None)
        site.set_up(SMALL, SMALL, SMALL // 2)
        for _ in range(options.rounds):
            try:
                theirs.append(collect_foreign(folder / "peer", options.peer_blobs))
            except UnavailableError as error:
                print(f"\nno comparison: {error}")
                return {}
            cost = collect(site, None, options.peer_blobs)
            ours.append(cost.mark + cost.sweep + cost.removal)
    header = [f"{options.peer_blobs} blobs, s", "entrepot", "docker-registry", "ratio"]
    ratio = median(b / a for a, b in zip(ours, theirs, strict=True))
    print(f"\n{table([header, ['', *map(number, (median(ours), median(theirs), ratio))]])}")
    return {"blobs": options.peer_blobs, "entrepot_seconds": ours, "peer_seconds": theirs}


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.collector", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--database", choices=("sqlite", "postgresql", "both"), default="both")
    parser.add_argument("--backlog", type=int, default=50_000, help="blobs collected beside pushes")
    parser.add_argument("--small", type=int, default=1_000, help="images of the small registry")
    parser.add_argument("--large", type=int, default=100_000, help="images of the large one")
    parser.add_argument("--peer-blobs", type=int, default=10_000, help="blobs beside the peer's")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each row")
    parser.add_argument("--seconds", type=float, default=10, help="of clients without a run")
    parser.add_argument("--data", type=Path, default=RESULTS, help="folder for the servers' data")
    parser.add_argument("--json", type=Path, help="result file (default: benchmarks/results/…)")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, 1 if a row is invalid, or 2 if it cannot run."""
    options = arguments(argv)
    begun = datetime.now(UTC)
    options.data.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    databases = ("sqlite", "postgresql") if options.database == "both" else (options.database,)
    document: dict[str, Any] = {
        "begun_at": begun.isoformat(timespec="seconds"),
        "machine": machine(),
    }
    try:
        document["databases"] = [measure(database, options) for database in databases]
        document["peer"] = compare(options)
    except UnavailableError as error:
        print(f"benchmarks.collector: {error}", file=sys.stderr)
        return 2
    except (ExchangeFailedError, OSError) as error:
        print(f"INVALID: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    path = options.json or RESULTS / f"collector-{begun:%Y%m%d-%H%M%S}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1))
    print(f"\nwritten to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

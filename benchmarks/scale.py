"""Measure how the registry scales: one with 100,000 images beside one that is nearly empty.

    python -m benchmarks.scale                       # both databases, about eight minutes
    python -m benchmarks.scale --database sqlite
    python -m benchmarks.scale --only 'tag move|deep page'
    python -m benchmarks.scale --small 4000          # beside one that has pages of its own for each

Both are set up by ``entrepot init``, filled by plain SQL and served by ``entrepot serve``.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.processes import machine
from benchmarks.report import ABSENT, number, table
from benchmarks.scale_data import BLOCK
from benchmarks.scale_rows import CASES, SLOW, Case, Slow, View, quick
from benchmarks.scale_site import Costs, Site
from benchmarks.scale_stores import SqliteStore, Store, postgresql
from benchmarks.servers import ROOT, UnavailableError
from benchmarks.wire import ExchangeFailedError

RESULTS: Final = ROOT / "benchmarks" / "results"
LIMIT: Final = 1.2
SMALL: Final = 2 * BLOCK
"""Images and tags of the nearly empty registry, unless `--small` says otherwise.

It has half as many repositories.
"""
SLOW_ROUNDS: Final = 3
NO_READING: Final = {"ENTREPOT_SCRUB_RATE_BYTES": "0", "ENTREPOT_SEAL_RATE_BYTES": "0"}
"""Settings under which nothing reads the blobs, which have no bytes and would count as damaged."""


@dataclass
class Row:
    """The costs of one step in each round, on the small and the large site."""

    name: str
    rounds: list[tuple[Costs, Costs]] = field(default_factory=list)
    failure: str = ""

    @property
    def valid(self) -> bool:
        """Return True if there are rounds and no failure."""
        return bool(self.rounds) and not self.failure

    def latency_ms(self, site: int) -> float:
        """Return the latency on a site (0 small, 1 large), in ms: the median of the rounds."""
        return median(costs[site].latency for costs in self.rounds) * 1e3

    def cpu_us(self, site: int) -> float:
        """Return the CPU time per call on a site, in microseconds: the median of the rounds."""
        return median(costs[site].cpu for costs in self.rounds) * 1e6

    @property
    def latency_ratio(self) -> float:
        """Return the latency of the large site by that of the small one: the rounds' median."""
        return median(large.latency / small.latency for small, large in self.rounds)

    @property
    def cpu_ratio(self) -> float:
        """Return the CPU time of the large site by that of the small one: the rounds' median."""
        return median(large.cpu / small.cpu for small, large in self.rounds)

    def cells(self) -> list[str]:
        """Return its line of the table."""
        if not self.valid:
            return [self.name, "INVALID", *[ABSENT] * 6]
        mark = " >" if max(self.latency_ratio, self.cpu_ratio) > LIMIT else ""
        latencies = (self.latency_ms(0), self.latency_ms(1), self.latency_ratio)
        costs = (self.cpu_us(0), self.cpu_us(1), self.cpu_ratio)
        return [self.name, *(number(value) for value in (*latencies, *costs)), mark]

    def record(self) -> dict[str, Any]:
        """Return everything of it, for a file."""
        if not self.valid:
            return {"row": self.name, "failure": self.failure}
        return {
            "row": self.name,
            "latency_ms": [self.latency_ms(0), self.latency_ms(1)],
            "latency_ratio": self.latency_ratio,
            "cpu_us": [self.cpu_us(0), self.cpu_us(1)],
            "cpu_ratio": self.cpu_ratio,
            "rounds": [[costs._asdict() for costs in pair] for pair in self.rounds],
        }


@dataclass(frozen=True)
class Waited:
    """The costs of a slow operation."""

    slow: Slow
    seconds: Sequence[float] = ()
    others: Sequence[float] = ()
    """Seconds of the slowest answer to another client meanwhile."""
    cpu: Sequence[float] = ()
    """Seconds of CPU time of the registry and the database server."""
    failure: str = ""

    def cells(self) -> list[str]:
        """Return its line of the table."""
        if not self.seconds:
            return [self.slow.name, "INVALID", *[ABSENT] * 4]
        limit = self.slow.limit
        mark = " >" if limit and median(self.seconds) > limit else ""
        shown = (median(self.seconds), limit, median(self.cpu), median(self.others))
        return [self.slow.name, *(number(value) for value in shown), mark]

    def record(self) -> dict[str, Any]:
        """Return everything of it, for a file."""
        return {
            "row": self.slow.name,
            "failure": self.failure,
            "seconds": self.seconds,
            "limit": self.slow.limit,
            "others_seconds": self.others,
            "cpu_seconds": self.cpu,
        }


def measure(case: Case, views: tuple[View, View], rounds: int) -> list[Row]:
    """Measure a case on both sites in the order A B, B A, …; return its rows.

    The first round does not count.
    """
    rows: dict[str, Row] = {}
    try:
        for turn in range(rounds + 1):
            order = (0, 1) if turn % 2 else (1, 0)
            found: dict[int, dict[str, Costs]] = {}
            for site in order:
                view = views[site]
                view.site.refresh()
                steps = case.steps(view, case.things)
                found[site] = {name: view.site.measure(calls) for name, calls in steps}
            for name in found[0]:
                row = rows.setdefault(name, Row(name))
                if turn:
                    row.rounds.append((found[0][name], found[1][name]))
    except (OSError, ExchangeFailedError) as error:
        progress(str(error))
        rows.setdefault(case.name, Row(case.name)).failure = f"{type(error).__name__}: {error}"
    return list(rows.values())


def wait_for(slow: Slow, view: View) -> Waited:
    """Measure a slow operation a few times on the large site."""
    try:
        view.site.refresh()
        call, other = slow.call(view), quick(view)
        measured = [view.site.measure_beside(call, other) for _ in range(SLOW_ROUNDS)]
    except (OSError, ExchangeFailedError) as error:
        progress(str(error))
        return Waited(slow, failure=f"{type(error).__name__}: {error}")
    seconds, others, cpu = zip(*measured, strict=True)
    return Waited(slow, seconds, others, cpu)


def run(views: tuple[View, View], only: str, rounds: int) -> tuple[list[Row], list[Waited]]:
    """Measure the cases and slow operations whose name matches the pattern `only`."""
    rows: list[Row] = []
    chosen = [case for case in CASES if re.search(only, case.name)]
    for at, case in enumerate(chosen, 1):
        found = measure(case, views, rounds)
        rows += found
        for row in found:
            ratios = f"{row.latency_ratio:.2f} {row.cpu_ratio:.2f}" if row.valid else "INVALID"
            progress(f"[{at}/{len(chosen)}] {row.name}: {ratios}")
    waited = []
    for slow in (slow for slow in SLOW if re.search(only, slow.name)):
        waited.append(wait_for(slow, views[1]))
        progress(f"{slow.name}: {' '.join(waited[-1].cells()[1:])}")
    return rows, waited


@contextmanager
def stores(database: str, folder: Path) -> Iterator[tuple[list[Store], int | None]]:
    """Give two empty databases, and the server's process id, if any."""
    names = ("small", "large")
    if database == "sqlite":
        yield [SqliteStore(folder / name / "metadata.db") for name in names], None
        return
    with postgresql() as server:
        yield [server.create(name) for name in names], server.pid


def compare(database: str, options: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    """Set up and measure two registries on one kind of database.

    Return the results for the JSON file, and True if they are valid.
    """
    sizes = (
        (options.small, options.small, options.small // 2),
        (options.images, options.tags, options.repositories),
    )
    with ExitStack() as stack:
        prefix = f"scale-{database}-"
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix, dir=options.data)))
        found, pid = stack.enter_context(stores(database, folder))
        names = ("small", "large")
        sites = [
            Site(name, folder / name, store, pid, NO_READING)
            for name, store in zip(names, found, strict=True)
        ]
        for site, size in zip(sites, sizes, strict=True):
            begun = time.monotonic()
            site.set_up(*size)
            wrong = site.store.miscounts()
            if wrong:
                raise UnavailableError(f"{site.name} was filled wrongly: {', '.join(wrong)}")
            progress(f"{database}, {site.name}: filled in {time.monotonic() - begun:.0f} s")
        for site in sites:
            stack.callback(site.stop)
            site.start()
        for site in sites:
            site.settle()
        views = (View(sites[0]), View(sites[1]))
        rows, waited = run(views, options.only, options.rounds)
        while options.hold and (only := _asked(sites)):
            show(database, *run(views, only, options.rounds))
        miscounts = [what for site in sites for what in site.store.miscounts()]
    show(database, rows, waited)
    print(f"counters that differ from a recount afterwards: {', '.join(miscounts) or 'none'}")
    report = {
        "database": database,
        "rows": [row.record() for row in rows],
        "slow": [each.record() for each in waited],
        "miscounts": miscounts,
    }
    valid = all(row.valid for row in rows) and all(each.seconds for each in waited)
    return report, valid and not miscounts


def _asked(sites: Sequence[Site]) -> str:
    """Keep the registries running until the user answers; return what to measure again."""
    for site in sites:
        print(f"{site.name}: {site.url} over {site.store.url}")
    return input("Measure again (a regular expression; nothing ends it): ")


def show(database: str, rows: Sequence[Row], waited: Sequence[Waited]) -> None:
    """Print the tables and a summary."""
    print(f"\n{database}; ratios above {LIMIT} are marked: there size costs")
    header = ["row", "small ms", "large ms", "ratio", "small cpu", "large cpu", "ratio", ""]
    print(table([header, *(row.cells() for row in rows)]))
    if waited:
        print()
        header = ["on the large one", "s", "at most", "cpu s", "others' worst s", ""]
        print(table([header, *(each.cells() for each in waited)]))
    costly = [row.name for row in rows if row.valid and row.cells()[-1]]
    print(f"\nabove {LIMIT}: {', '.join(costly) or 'none'}")


def progress(text: str) -> None:
    """Print a line of progress to stderr."""
    print(f"  {text}", file=sys.stderr, flush=True)


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--database", choices=("sqlite", "postgresql", "both"), default="both")
    for name, count in (("images", 100_000), ("tags", 100_000), ("repositories", 5_000)):
        parser.add_argument(f"--{name}", type=int, default=count, help="of the large registry")
    parser.add_argument(
        "--small", type=int, default=SMALL, help="images and tags of the small registry"
    )
    parser.add_argument("--rounds", type=int, default=8, help="measurements of each row")
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose name matches")
    parser.add_argument("--data", type=Path, default=RESULTS, help="folder for the servers' data")
    parser.add_argument("--json", type=Path, help="result file (default: benchmarks/results/…)")
    parser.add_argument("--hold", action="store_true", help="keep them, to look and measure again")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, 1 if a row is invalid, or 2 if it cannot run."""
    options = arguments(argv)
    begun = datetime.now(UTC)
    options.data.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    databases = ("sqlite", "postgresql") if options.database == "both" else (options.database,)
    try:
        found = [compare(database, options) for database in databases]
    except (UnavailableError, ValueError) as error:
        print(f"benchmarks.scale: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    document = {
        "begun_at": begun.isoformat(timespec="seconds"),
        "machine": machine(),
        "large": {name: getattr(options, name) for name in ("images", "tags", "repositories")},
        "databases": [report for report, _ in found],
    }
    path = options.json or RESULTS / f"scale-{begun:%Y%m%d-%H%M%S}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1))
    print(f"\nwritten to {path}")
    return 0 if all(valid for _, valid in found) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Measure registries side by side: ``python -m benchmarks --help``."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import plot, report, rows
from benchmarks.bodies import BodyMaker
from benchmarks.load import Measurement, measure
from benchmarks.processes import machine
from benchmarks.report import Outcome
from benchmarks.rows import Row
from benchmarks.servers import KINDS, ROOT, Server, UnavailableError, kind_of
from benchmarks.target import DISK_BYTES, GIB, Target
from benchmarks.wire import ExchangeFailedError

RESULTS = ROOT / "benchmarks" / "results"
MEMORY_LIMIT_MIB = 150
SEED_BYTES = 2 * GIB


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "targets",
        nargs="*",
        default=["entrepot", "docker-registry"],
        help=f"{', '.join(KINDS)} (started here; with settings, as entrepot:INLINE_MAX_BYTES:0) "
        "or NAME=URL[=PID] (running already); "
        "the first is compared with each of the others",
    )
    parser.add_argument("--full", action="store_true", help="all rows, longer (about 40 minutes)")
    parser.add_argument("--only", default="", metavar="REGEX", help="rows whose name matches")
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    parser.add_argument("--rounds", type=int, help="measurements of each row (quick 9, full 5)")
    parser.add_argument("--seconds", type=float, help="length of each (quick 0.2, full 2)")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--namespace", default="dev", help="prefix of the repositories used")
    parser.add_argument("--data", type=Path, default=RESULTS, help="folder for the servers' data")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw rate by clients as SVG")
    parser.add_argument("--json", type=Path, help="result file (default: benchmarks/results/…)")
    options = parser.parse_args(argv)
    options.rounds = options.rounds or (5 if options.full else 9)
    options.seconds = options.seconds or (2 if options.full else 0.2)
    return options


def progress(text: str) -> None:
    """Print a line of progress to stderr."""
    print(f"  {text}", file=sys.stderr, flush=True)


def make_targets(options: argparse.Namespace) -> list[Target]:
    """Return the targets of the command line, not started."""
    maker = BodyMaker()
    found: list[Target] = []
    for text in options.targets:
        name, _, rest = text.partition("=")
        same = sum(name in (target.name, target.name.split("#")[0]) for target in found)
        name = f"{name}#{same + 1}" if same else name
        target = Target(name, "started elsewhere", maker, options.namespace, progress)
        if rest:
            url, _, pid = rest.partition("=")
            target.base_url, target.known_pid = url.rstrip("/"), int(pid) if pid else None
        else:
            kind, settings = kind_of(text)
            folder = options.data / f"data-{os.getpid()}-{len(found)}"
            target.notes = f"{kind.version()}; {kind.notes}"
            target.server = Server(kind, folder.resolve(), options.workers, settings)
            target.server.repositories = target.repository, target.tagged_repository
        found.append(target)
    return found


def run_row(row: Row, targets: list[Target], rounds: int, seconds: float) -> list[Outcome]:
    """Measure `row` on all targets in turn, `rounds` times, so that drift affects all equally."""
    measured: dict[str, list[Measurement]] = {target.name: [] for target in targets}
    failures: dict[str, str] = {}
    for number in range(row.rounds(rounds)):
        for target in targets if number % 2 == 0 else reversed(targets):
            if target.name in failures:
                continue
            try:
                result = run_once(row, target, seconds, check=number == 0)
            except (OSError, ExchangeFailedError) as error:
                failures[target.name] = f"{type(error).__name__}: {error}"
                progress(f"{target.name}: {error}")
                continue
            measured[target.name].append(result)
            for text in result.errors[:1]:
                progress(f"{target.name}: {text}")
    return [Outcome(row, measured[t.name], failures.get(t.name, "")) for t in targets]


def run_once(row: Row, target: Target, seconds: float, *, check: bool) -> Measurement:
    """Store what `row` needs, wait for the disk if it writes, and measure."""
    plan = row.plan(target)
    if row.writes:
        os.sync()
    result = measure(target.connection, target.pids, plan, row.seconds(seconds))
    if check and not result.errors:
        plan.check()
    if row.stores:
        target.make_room(result.payload_bytes or row.least_bytes)
    return result


def run(options: argparse.Namespace, chosen: list[Row], targets: list[Target]) -> int:
    """Run the benchmark; return the exit status."""
    begun, about_machine = datetime.now(UTC), machine()
    outcomes: dict[str, list[Outcome]] = {target.name: [] for target in targets}
    try:
        for target in targets:
            target.start()
        for at, row in enumerate(chosen, 1):
            started_at = time.monotonic()
            found = run_row(row, targets, options.rounds, options.seconds)
            for target, outcome in zip(targets, found, strict=True):
                outcomes[target.name].append(outcome)
            seconds = time.monotonic() - started_at
            progress(f"[{at}/{len(chosen)}] {row.name}: {_brief(found)} ({seconds:.0f} s)")
    finally:
        for target in targets:
            target.stop()
    about = {
        "begun_at": begun.isoformat(timespec="seconds"),
        "mode": "full" if options.full else "quick",
        "rounds": options.rounds,
        "seconds": options.seconds,
        "workers": options.workers,
        "machine": about_machine,
        "targets": {target.name: target.notes for target in targets},
    }
    show(about, outcomes)
    path = options.json or RESULTS / f"{begun:%Y%m%d-%H%M%S}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    result = report.document(about, outcomes, targets[0].name)
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False))
    print(f"\nwritten to {path}")
    if options.plot is not None:
        options.plot.write_text(plot.rates(result))
        print(f"drawn in {options.plot}")
    return 0 if all(o.valid for found in outcomes.values() for o in found) else 1


def _brief(found: list[Outcome]) -> str:
    values = [report.number(o.values[-1]) if o.valid else "INVALID" for o in found]
    return f"{' | '.join(values)} {found[0].row.unit.value}"


def show(about: dict[str, Any], outcomes: dict[str, list[Outcome]]) -> None:
    """Print the tables and a summary."""
    print("\n" + ", ".join(f"{key} {value}" for key, value in about["machine"].items()))
    for name, notes in about["targets"].items():
        print(f"{name}: {notes}")
    (first, ours), *peers = outcomes.items()
    if not peers:
        print("\n" + report.single(ours))
    for name, peer in peers:
        print(f"\nours = {first}, peer = {name}; ratios above 1 are better for ours")
        print(report.comparison(ours, peer))
        compared = [(o.row.name, report.ratio(o, p)) for o, p in zip(ours, peer, strict=True)]
        below = [f"{row} ({times:.2f})" for row, times in compared if times and times < 1]
        print(f"below 1.0: {', '.join(below) or 'none'}")
    print("\ncpu: server µs a request, or s/GB (10⁹ bytes); MiB: peak of the largest process")
    for name, found in outcomes.items():
        for line in report.findings(found):
            print(f"{name}: {line}")
    print(f"entrepot's limit while 1 GiB blobs move is {MEMORY_LIMIT_MIB} MiB a worker")


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    options = arguments(argv)
    known = rows.select(full=options.full or bool(options.only))
    chosen = [row for row in known if re.search(options.only, row.name)]
    if options.list:
        print("\n".join(row.name for row in chosen))
        return 0
    try:
        targets = make_targets(options)
    except UnavailableError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    if not chosen:
        print(f"benchmarks: no row matches {options.only!r}; --list names them", file=sys.stderr)
        return 2
    options.data.mkdir(parents=True, exist_ok=True)
    stored = max((row.least_bytes for row in chosen if row.stores), default=0)
    needed = stored + (DISK_BYTES + SEED_BYTES) * len(targets)
    free = shutil.disk_usage(options.data).free
    if free < needed:
        print(
            f"benchmarks: {options.data} has {free / 1e9:.0f} GB free and these rows may need "
            f"{needed / 1e9:.0f}; name another folder with --data",
            file=sys.stderr,
        )
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return run(options, chosen, targets)
    except UnavailableError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())

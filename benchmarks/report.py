"""Medians and ratios, tables for the terminal, and the JSON document."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from statistics import median
from typing import Any

from benchmarks.load import Measurement, percentile
from benchmarks.processes import MIB
from benchmarks.rows import Row, Unit
from benchmarks.target import GIB, TAG_COUNT

ABSENT = "-"


@dataclass(frozen=True)
class Outcome:
    """All rounds of one row on one target, or why it failed."""

    row: Row
    rounds: Sequence[Measurement]
    failure: str = ""

    @property
    def errors(self) -> list[str]:
        """Return all errors; one makes the row invalid."""
        failures = [self.failure] if self.failure else []
        return failures + [error for measured in self.rounds for error in measured.errors]

    @property
    def valid(self) -> bool:
        """Return True if there are rounds and no errors."""
        return bool(self.rounds) and not self.errors

    @property
    def values(self) -> list[float]:
        """Return the row's value in each round."""
        return [_value(self.row.unit, measured) for measured in self.rounds]

    def latency_ms(self, percent: float) -> float:
        """Return a percentile of the latencies of all rounds together."""
        return percentile(sorted(chain(*(m.latencies_ms for m in self.rounds))), percent)

    @property
    def cpu(self) -> float | None:
        """Return the server's CPU time: µs per request, or seconds per 10⁹ bytes."""
        costs = [_cpu(self.row.unit, measured) for measured in self.rounds]
        known = [cost for cost in costs if cost is not None]
        return median(known) if known else None

    @property
    def peak_worker_mib(self) -> float | None:
        """Return the largest VmHWM of any one process in any round."""
        peaks = [m.peak_worker_bytes for m in self.rounds if m.peak_worker_bytes is not None]
        return max(peaks) / MIB if peaks else None


def _value(unit: Unit, measured: Measurement) -> float:
    match unit:
        case Unit.REQUESTS:
            return measured.exchanges / measured.seconds
        case Unit.MEGABYTES:
            return measured.payload_bytes / 1e6 / measured.seconds
        case Unit.BULK:
            return measured.background_bytes / 1e6 / measured.seconds
        case Unit.P99:
            return percentile(measured.latencies_ms, 99)
        case Unit.MEMORY:
            return (measured.peak_worker_bytes or math.nan) / MIB


def _cpu(unit: Unit, measured: Measurement) -> float | None:
    if measured.server_cpu_seconds is None or unit in (Unit.BULK, Unit.P99, Unit.MEMORY):
        return None
    if unit is Unit.MEGABYTES:
        return measured.server_cpu_seconds / (measured.payload_bytes / 1e9)
    return measured.server_cpu_seconds / measured.exchanges * 1e6


def ratios(ours: Outcome, peer: Outcome) -> list[float]:
    """Return how many times better `ours` is, for each pair of consecutive rounds."""
    if not (ours.valid and peer.valid) or ours.row.unit is Unit.MEMORY:
        return []  # memory has a limit of its own, and is not compared with a peer's
    pairs = zip(ours.values, peer.values, strict=True)
    if ours.row.unit.more_is_better:
        return [mine / theirs for mine, theirs in pairs]
    return [theirs / mine for mine, theirs in pairs]


def ratio(ours: Outcome, peer: Outcome) -> float | None:
    """Return how many times better `ours` is: the median over the rounds."""
    found = ratios(ours, peer)
    return median(found) if found else None


def findings(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield findings over several rows of one target."""
    first, late = (
        {
            o.row.name.split()[-1]: median(o.values)
            for o in outcomes
            if kind in o.row.name and o.valid
        }
        for kind in ("first ones", f"after {TAG_COUNT:,}")
    )
    for clients in first.keys() & late.keys():
        share = number(late[clients] / first[clients])
        yield f"new tags {clients} after {TAG_COUNT:,} at {share} of the rate of the first ones"
    moving = [o for o in outcomes if o.row.least_bytes == 16 * GIB]
    peaks = [o.peak_worker_mib for o in moving if o.peak_worker_mib is not None]
    if peaks:
        yield f"{number(max(peaks))} MiB at most while 16 clients moved blobs of 1 GiB"


def table(lines: Sequence[Sequence[str]]) -> str:
    """Return `lines` as aligned text; the first line is the header, the first column a name."""
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    shown = []
    for line in lines:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        shown.append("  ".join(cells).rstrip())
    shown.insert(1, "-" * max(len(line) for line in shown))
    return "\n".join(shown)


def comparison(ours: Sequence[Outcome], peer: Sequence[Outcome]) -> str:
    """Return the table of one target beside another, row by row."""
    header = ["row", "unit", "ours", "peer", "ratio", "p50 ms", "peer", "p99 ms", "peer"]
    lines = [[*header, "cpu", "peer", "ratio", "MiB", "peer"]]
    for mine, theirs in zip(ours, peer, strict=True):
        times = ratio(mine, theirs)
        mark = " <" if times is not None and times < 1 else ""
        cheaper = theirs.cpu / mine.cpu if mine.cpu and theirs.cpu else None
        value, p50, p99, cpu, memory = (
            (first, second) for first, second in zip(_cells(mine), _cells(theirs), strict=True)
        )
        lines.append(
            [
                *(mine.row.name, mine.row.unit.value, *value, number(times) + mark),
                *(*p50, *p99, *cpu, number(cheaper), *memory),
            ]
        )
    return table(lines)


def single(outcomes: Sequence[Outcome]) -> str:
    """Return the table of a target that has no peer."""
    lines = [["row", "unit", "value", "p50 ms", "p99 ms", "cpu", "MiB"]]
    lines += [[o.row.name, o.row.unit.value, *_cells(o)] for o in outcomes]
    return table(lines)


def _cells(outcome: Outcome) -> list[str]:
    """Return value, p50, p99, CPU and peak memory."""
    if not outcome.valid:
        return ["INVALID", *[ABSENT] * 4]
    latencies = (outcome.latency_ms(50), outcome.latency_ms(99))
    shown = (median(outcome.values), *latencies, outcome.cpu, outcome.peak_worker_mib)
    return [number(value) for value in shown]


def number(value: float | None) -> str:
    """Return `value` with about three significant digits."""
    if value is None or math.isnan(value):
        return ABSENT
    decimals = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{decimals}f}"


def document(
    about: dict[str, Any], outcomes: dict[str, list[Outcome]], first: str
) -> dict[str, Any]:
    """Return all measurements for the JSON file; ratios compare target `first` with the others."""
    rows = []
    for at, outcome in enumerate(outcomes[first]):
        others = {
            name: {"median": ratio(outcome, found[at]), "rounds": ratios(outcome, found[at])}
            for name, found in outcomes.items()
            if name != first
        }
        rows.append(
            {
                "row": outcome.row.name,
                "unit": outcome.row.unit.value,
                "ratio": others,
                "targets": {name: _outcome_record(found[at]) for name, found in outcomes.items()},
            }
        )
    return {**about, "rows": rows}


def _outcome_record(outcome: Outcome) -> dict[str, Any]:
    rounds = [asdict(measured) for measured in outcome.rounds]
    for record in rounds:
        del record["latencies_ms"]
    return {
        "valid": outcome.valid,
        "value": median(outcome.values) if outcome.valid else None,
        "cpu": outcome.cpu if outcome.valid else None,
        "p50_ms": outcome.latency_ms(50) if outcome.valid else None,
        "p99_ms": outcome.latency_ms(99) if outcome.valid else None,
        "peak_worker_mib": outcome.peak_worker_mib,
        "errors": outcome.errors[:10],
        "rounds": rounds,
    }

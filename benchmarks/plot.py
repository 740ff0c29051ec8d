"""Draw rates against the number of clients, from a result file of the benchmark.

    python -m benchmarks.plot RESULT.json FILE.svg

Each kind of row that was measured with several numbers of clients gets a chart, each target a line.
Both axes are logarithmic.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any, Final

COLOURS: Final = ("#1f6feb", "#d1632a", "#2da44e", "#8250df", "#9a6700", "#57606a")
WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 200, 36, 40

Curves = dict[str, list[tuple[int, float]]]
"""Points of clients and rate, by target."""


def curves(document: Mapping[str, Any]) -> dict[tuple[str, str], Curves]:
    """Return the curves of each kind of row and unit that has more than one number of clients."""
    found: dict[tuple[str, str], Curves] = {}
    for row in document["rows"]:
        named = re.fullmatch(r"(.+) x(\d+)", row["row"])
        if named is None:
            continue
        of_kind = found.setdefault((named[1], row["unit"]), {})
        for target, outcome in row["targets"].items():
            if outcome["value"]:
                point = (int(named[2]), float(outcome["value"]))
                of_kind.setdefault(target, []).append(point)
    return {
        kind: {target: sorted(points) for target, points in of_kind.items()}
        for kind, of_kind in found.items()
        if any(len(points) > 1 for points in of_kind.values())
    }


def rates(document: Mapping[str, Any]) -> str:
    """Return an SVG image of all curves of a result."""
    charts = curves(document)
    height = max(1, len(charts)) * HEIGHT
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
            f' width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">'
        ),
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    for at, ((name, unit), of_kind) in enumerate(charts.items()):
        lines.append(f'<g transform="translate(0 {at * HEIGHT})">')
        lines += _chart(f"{name}: {unit} by clients", of_kind)
        lines.append("</g>")
    return "\n".join([*lines, "</svg>", ""])


def _chart(title: str, of_kind: Curves) -> Iterator[str]:
    points = [point for curve in of_kind.values() for point in curve]
    clients = sorted({x for x, _ in points})
    decades = _decades(min(y for _, y in points), max(y for _, y in points))
    x_scale = _scale(clients[0], clients[-1], LEFT, WIDTH - RIGHT)
    y_scale = _scale(decades[0], decades[-1], HEIGHT - BOTTOM, TOP)
    yield f'<text x="{LEFT}" y="20" font-weight="bold">{escape(title)}</text>'
    for rate in decades:
        y = y_scale(rate)
        yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#d0d7de"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{rate:,.0f}</text>'
    for count in clients:
        place = f'x="{x_scale(count):.1f}" y="{HEIGHT - BOTTOM + 18}"'
        yield f'<text {place} text-anchor="middle">{count}</text>'
    ends = []
    for number, (target, curve) in enumerate(of_kind.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [(x_scale(x), y_scale(y)) for x, y in curve]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        for x, y in places:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
        ends.append((places[-1][1], target, colour))
    lowest = 0.0
    for y, target, colour in sorted(ends):
        lowest = max(y + 4, lowest + 14)  # names do not cover each other
        place = f'x="{WIDTH - RIGHT + 10}" y="{lowest:.1f}"'
        yield f'<text {place} fill="{colour}">{escape(target)}</text>'


def _decades(least: float, most: float) -> list[float]:
    """Return 1, 2 and 5 times powers of ten that enclose the range."""
    steps = [
        factor * 10.0**power
        for power in range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
        for factor in (1, 2, 5)
    ]
    below = max(index for index, step in enumerate(steps) if step <= least)
    above = min(index for index, step in enumerate(steps) if step >= most and index > below)
    return steps[below : above + 1]


def _scale(least: float, most: float, start: float, end: float) -> Any:  # noqa: ANN401 - a function
    """Return a logarithmic scale from `least` at `start` to `most` at `end`."""
    span = math.log(most / least) or 1.0
    return lambda value: start + math.log(value / least) / span * (end - start)


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(rates(json.loads(Path(sys.argv[1]).read_text())))

"""Draw amounts as bars, and amounts over time, in SVG; the style sheet has the colours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from markupsafe import Markup

WIDTH: Final = 1000
COLOURS: Final = 6
_LEAST: Final = 3.0
"""The minimum width of a part, so that it is visible."""

_BAR: Final = Markup(
    '<svg class="bar" viewBox="0 0 {} 24" preserveAspectRatio="none" role="img" aria-label="{}">'
)
_PART: Final = Markup(
    '<rect class="{}" x="{:.2f}" y="0" width="{:.2f}" height="24"><title>{}</title></rect>'
)


class Share(NamedTuple):
    """A part of a bar."""

    amount: int
    words: str
    style: str
    """The class of its rectangle."""


def layer_shares(sizes: Iterable[int]) -> list[Share]:
    """Return the layers of an image as parts of a bar, in alternating colours."""
    return [
        Share(size, f"layer {number + 1}: {size:,} bytes", f"layer-{number % COLOURS}")
        for number, size in enumerate(sizes)
    ]


def bar(parts: Sequence[Share | tuple[int, str, str]], label: str, whole: int = 0) -> Markup:
    """Return a bar of these parts; with a larger `whole`, the rest stays empty."""
    drawn = [Share(*part) for part in parts if part[0] > 0]
    total = max(whole, sum(part.amount for part in drawn), 1)
    widths = [max(part.amount * WIDTH / total, _LEAST) for part in drawn]
    surplus = max(1.0, sum(widths) / WIDTH)
    picture = _BAR.format(WIDTH, label)
    left = 0.0
    for part, width in zip(drawn, widths, strict=True):
        picture += _PART.format(part.style, left, width / surplus, part.words)
        left += width / surplus
    return picture + Markup("</svg>")


_SERIES: Final = Markup(
    '<svg class="series" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">'
)
_COLUMN: Final = Markup(
    '<rect class="{}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"><title>{}</title></rect>'
)
_HEIGHT: Final = 160
_FEWEST: Final = 30
"""The least number of columns of a chart: otherwise a single day would fill its whole width."""


def series(points: Sequence[tuple[int, str]], style: str, label: str) -> Markup:
    """Return columns, one for each amount, up to the right edge; the text of each is its title."""
    most = max((amount for amount, _ in points), default=0) or 1
    width = WIDTH / max(len(points), _FEWEST)
    left = WIDTH - width * len(points)
    picture = _SERIES.format(WIDTH, _HEIGHT, label)
    for place, (amount, words) in enumerate(points):
        height = max(amount * _HEIGHT / most, _LEAST if amount else 0.0)
        picture += _COLUMN.format(
            style, left + place * width, _HEIGHT - height, max(width - 2, 1), height, words
        )
    return picture + Markup("</svg>")

"""The templates of pages, and their filters for sizes, times and digests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from secrets import token_urlsafe
from typing import Any, Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from litestar.plugins.jinja import JinjaTemplateEngine
from markupsafe import Markup

from cloudcore.clock import MICROSECONDS
from cloudcore.commands.records import field_of, indented, size_text
from registry.console.addresses import RepositoryPath, page_links, path_of_record
from registry.console.assets import address_of
from registry.console.form_refusals import NO_REFUSAL
from registry.console.nouns.noun_pages import text_of

WIDTH: Final = 1000
COLOURS: Final = 6
_LEAST: Final = 3.0
"""The minimum width of a part of a bar, so that the part is visible."""

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
    """The CSS class of the rectangle."""


def layer_shares(sizes: Iterable[int]) -> list[Share]:
    """Return an image's layers as parts of a bar, in alternating colours."""
    return [
        Share(size, f"layer {number + 1}: {size:,} bytes", f"layer-{number % COLOURS}")
        for number, size in enumerate(sizes)
    ]


def bar(parts: Sequence[Share | tuple[int, str, str]], label: str, whole: int = 0) -> Markup:
    """Draw a bar of `parts`; if `whole` exceeds the sum of their amounts, the rest stays empty."""
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
"""Minimum number of columns of a chart: otherwise a single column would fill the whole width."""


def series(points: Sequence[tuple[int, str]], style: str, label: str) -> Markup:
    """Draw a column for each amount, aligned to the right; the text is the column's tooltip."""
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


_SPANS: Final = (
    (60, 1, "second"),
    (3600, 60, "minute"),
    (48 * 3600, 3600, "hour"),
    (60 * 86400, 86400, "day"),
    (730 * 86400, 30 * 86400, "month"),
    (float("inf"), 365 * 86400, "year"),
)


@cache
def template_engine() -> JinjaTemplateEngine:
    """Return the template engine, made once per process."""
    environment = Environment(
        loader=PackageLoader("registry.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(
        size=size_text,
        exact=lambda count: f"{count:,} bytes",
        short=short_digest,
        who=who,
        span=span,
        when=_when,
        until=_until,
        plural=_plural,
        json=indented,
        at_field=field_of,
    )
    environment.globals.update(
        asset=address_of,
        layer_shares=layer_shares,
        bar=bar,
        series=series,
        at=_at,
        page_links=page_links,
        text_of=text_of,
        no_refusal=NO_REFUSAL,
        once=lambda: token_urlsafe(18),
        product=f"entrepot {version('entrepot')}",
    )
    return JinjaTemplateEngine.from_environment(environment)


def short_digest(digest: str) -> str:
    """Return a digest cut to its first 12 digits."""
    algorithm, _, digits = digest.partition(":")
    return f"{algorithm}:{digits[:12]}"


def who(crn: str | None, source: Mapping[str, str | None] | None = None) -> str:
    """Return words for the principal with this CRN; ``nobody signed in`` for None.

    If a `source` has assumed a role, the words are of the source and the role, and of the session
    if its name is not the source's.
    """
    if not crn:
        return "nobody signed in"
    if source is not None and source["session_name"] is not None:
        name, session = source["name"], source["session_name"]
        role = crn.rpartition("/")[2]
        return f"{name} as {role}" if session == name else f"{name} as {role}, session {session}"
    kind, _, name = crn.rpartition(":")[2].partition("/")
    if source is not None and kind == "user":
        return source["name"] or name
    match kind:
        case "service-account":
            return f"{name} (service account)"
        case "lifecycle-run":
            return "lifecycle policy"
        case "garbage-collection-run":
            return "garbage collection"
        case "role":
            return f"{name} (role)"
        case _:
            return f"{kind} {name}"


def span(seconds: float) -> str:
    """Format a time span in words, rounded to one unit."""
    unit, name = next((unit, name) for limit, unit, name in _SPANS if seconds < limit)
    count = round(seconds / unit)
    return f"{count} {name}{'' if count == 1 else 's'}"


@pass_context
def _when(context: Context, moment: str | None) -> Markup:
    """Format the time since or until a moment (None: ``never``), with the exact time as tooltip."""
    if moment is None:
        return Markup('<span class="quiet">never</span>')
    passed = (_now(context) - datetime.fromisoformat(moment)).total_seconds()
    if abs(passed) < 45:
        return _time(moment, "just now")
    return _time(moment, f"{span(passed)} ago" if passed > 0 else f"in {span(-passed)}")


@pass_context
def _until(context: Context, moment: str | None) -> Markup:
    """Format the time until a moment (None: ``no end``), with the exact time as tooltip."""
    if moment is None:
        return Markup('<span class="quiet">no end</span>')
    left = (datetime.fromisoformat(moment) - _now(context)).total_seconds()
    return _time(moment, f"in {span(left)}" if left > 0 else "due")


@pass_context
def _at(context: Context, repository: Mapping[str, Any]) -> RepositoryPath:
    acting = context["session"].acting
    return path_of_record(acting.account, repository)


def _now(context: Context) -> datetime:
    return datetime.fromtimestamp(context["now"] / MICROSECONDS, UTC)


def _time(moment: str, words: str) -> Markup:
    exact = datetime.fromisoformat(moment).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    shape = Markup('<time datetime="{}" title="{}">{}</time>')
    return shape.format(moment, exact, words)


def _plural(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"

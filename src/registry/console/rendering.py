"""From values to pages: the templates, and how sizes, moments and digests are shown."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from importlib import resources
from importlib.metadata import version
from typing import Any, Final, NamedTuple

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from cloudcore.clock import Clock
from cloudcore.wire import rfc3339
from registry.console import drawing

_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB")
_SPANS: Final = (
    (60, 1, "second"),
    (3600, 60, "minute"),
    (48 * 3600, 3600, "hour"),
    (60 * 86400, 86400, "day"),
    (730 * 86400, 30 * 86400, "month"),
    (float("inf"), 365 * 86400, "year"),
)
_TYPES: Final = {"css": "text/css; charset=utf-8", "js": "text/javascript", "svg": "image/svg+xml"}


class Asset(NamedTuple):
    """A file that pages refer to."""

    content: bytes
    content_type: str
    version: str
    """Changes with the content."""


class Pages:
    """The templates, with what all of them know."""

    def __init__(self, clock: Clock) -> None:
        self.assets = _assets()
        self._clock = clock
        self._environment = Environment(
            loader=PackageLoader("registry.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters.update(
            size=size_of,
            exact=lambda count: f"{count:,} bytes",
            short=short_digest,
            who=who,
            span=span,
            when=_when,
            until=_until,
            plural=_plural,
            json=_as_json,
        )
        self._environment.globals.update(
            asset=self._address,
            layer_shares=drawing.layer_shares,
            bar=drawing.bar,
            product=f"entrepot {version('entrepot')}",
        )

    def render(self, template: str, values: Mapping[str, object]) -> bytes:
        """Return a page."""
        now = datetime.fromisoformat(rfc3339(self._clock()))
        found = self._environment.get_template(template)
        return found.render(values, now=now).encode()

    def _address(self, name: str) -> str:
        return f"/console/static/{name}?v={self.assets[name].version}"


def _assets() -> dict[str, Asset]:
    found = {}
    for file in resources.files("registry.console").joinpath("static").iterdir():
        content = file.read_bytes()
        kind = _TYPES[file.name.rpartition(".")[2]]
        found[file.name] = Asset(content, kind, sha256(content).hexdigest()[:12])
    return found


def size_of(count: int) -> str:
    """Return a number of bytes as people read it."""
    if count < 1024:
        return f"{count} B"
    amount = count / 1024
    units = iter(_UNITS)
    unit = next(units)
    while amount >= 999.5:
        amount /= 1024
        unit = next(units)
    return f"{amount:.0f} {unit}" if amount >= 99.95 else f"{amount:.1f} {unit}"


def short_digest(digest: str) -> str:
    """Return as much of a digest as tells it from others."""
    algorithm, _, digits = digest.partition(":")
    return f"{algorithm}:{digits[:12]}"


def who(crn: str | None) -> str:
    """Return the name of a principal."""
    if not crn:
        return "nobody signed in"
    kind, _, name = crn.rpartition(":")[2].partition("/")
    match kind:
        case "service-account":
            return f"{name} (service account)"
        case "lifecycle-run":
            return "lifecycle policy"
        case "role":
            return f"{name} (role)"
        case _:
            return f"{kind} {name}"


def span(seconds: float) -> str:
    """Return a span of time in words, roughly."""
    for limit, unit, name in _SPANS:
        if seconds < limit:
            count = round(seconds / unit)
            return f"{count} {name}{'' if count == 1 else 's'}"
    raise AssertionError("the last span has no limit")


@pass_context
def _when(context: Context, moment: str | None) -> Markup:
    """Return a moment as the time since then; the moment itself is its title."""
    if moment is None:
        return Markup('<span class="quiet">never</span>')
    passed = (context["now"] - datetime.fromisoformat(moment)).total_seconds()
    words = "just now" if passed < 45 else f"{span(passed)} ago"
    return _time(moment, words)


@pass_context
def _until(context: Context, moment: str | None) -> Markup:
    """Return a moment to come as the time until then."""
    if moment is None:
        return Markup('<span class="quiet">no end</span>')
    left = (datetime.fromisoformat(moment) - context["now"]).total_seconds()
    return _time(moment, f"in {span(left)}" if left > 0 else "due")


def _time(moment: str, words: str) -> Markup:
    exact = datetime.fromisoformat(moment).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    shape = Markup('<time datetime="{}" title="{}">{}</time>')
    return shape.format(moment, exact, words)


def _plural(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def _as_json(value: Any) -> str:  # noqa: ANN401 - JSON
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()

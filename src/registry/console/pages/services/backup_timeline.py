"""Draw the past and planned backups of a cluster on a timeline.

The picture is made from responses of ``/v1``; the table beside it says the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from markupsafe import Markup

from cloudcore.clock import MICROSECONDS
from cloudcore.databases.backups.cron import read_cron
from cloudcore.wire import moment_of, rfc3339

MOST: Final = 200
"""Maximum number of backups that are drawn: the newest."""
_WIDTH: Final = 1000
_LEFT: Final = 130
_RIGHT: Final = 960
_ROWS: Final = {"base": 56, "incremental": 116}
_NAMES: Final = {"base": "Base", "incremental": "Incremental"}
_AXIS: Final = 164
_MIDDLE: Final = 560
_FIRST_ENDS: Final = 320
"""The x-coordinate where the words at the beginning of the axis end."""
_LEGEND: Final = 216
_LEGENDS: Final = (142, 270, 490, 610, 770)
_HOUR: Final = 3600 * MICROSECONDS
_PLANNED: Final = {"base_cron": "base", "incremental_cron": "incremental"}

_SVG: Final = Markup(
    '<svg class="map backups" viewBox="0 0 {} 236" role="img"'
    ' aria-labelledby="line-title line-about">'
    '<title id="line-title">{}</title><desc id="line-about">{}</desc>'
)
_TEXT: Final = Markup('<text class="{}" x="{}" y="{}">{}</text>')
_END_TEXT: Final = Markup('<text class="{}" x="{}" y="{}" text-anchor="end">{}</text>')
_NEED: Final = Markup('<path class="way" d="M{:.1f} {}V{}H{:.1f}"/>')
_NOW: Final = Markup('<path class="now" d="M{0:.1f} 24V{1}"/>')
_WINDOW: Final = Markup(
    '<rect class="outside" x="{:.1f}" y="{}" width="{:.1f}" height="14" rx="4">'
    "<title>{}</title></rect>"
)
_MARK: Final = Markup('<g class="{}" transform="translate({:.1f} {})">{}{}</g>')
_TITLE: Final = Markup("<title>{}</title>")
_DOT: Final = Markup('<circle r="7"/>')
_RING: Final = Markup('<circle class="ring" r="12"/>')
_CROSS: Final = Markup('<path d="M-7-7 7 7M7-7-7 7"/>')
_SHAPES: Final = {
    "whole": _DOT,
    "proved": _DOT + _RING,
    "failed": _CROSS,
    "waiting": _DOT,
    "planned": _DOT,
}
_WORDS: Final = {
    "whole": "whole",
    "proved": "restored as a proof",
    "failed": "failed",
    "waiting": "under way",
    "planned": "planned",
}


def next_runs(cluster: Mapping[str, Any], now: int) -> Mapping[str, str]:
    """Map the field of each schedule to the time of its next run."""
    given = cluster.get("schedule") or {}
    return {name: rfc3339(read_cron(cron).after(now)) for name, cron in given.items() if cron}


def window_of(
    cluster: Mapping[str, Any], backups: Sequence[Mapping[str, Any]], now: int
) -> tuple[str, str] | None:
    """Return the first and last time to which a cluster can be restored.

    Both are whole seconds, as people enter them. Return None if no backup has succeeded, or the
    cluster runs elsewhere.
    """
    ends = [each["completed_at"] for each in backups if each["status"] == "succeeded"]
    ends = [each for each in ends if each]
    if cluster["type"] == "registered" or not ends:
        return None
    first = -(-min(map(_moment, ends)) // MICROSECONDS) * MICROSECONDS
    return rfc3339(first), rfc3339(max(now // MICROSECONDS * MICROSECONDS, first))


def backup_line(
    cluster: Mapping[str, Any], backups: Sequence[Mapping[str, Any]], now: int
) -> Markup | None:
    """Return the picture; None if there is neither a backup nor a planned backup."""
    drawn = backups[-MOST:]
    planned = {
        _PLANNED[name]: _moment(moment)
        for name, moment in next_runs(cluster, now).items()
        if name in _PLANNED
    }
    if not drawn and not planned:
        return None
    first = min([now - _HOUR, *map(_when, drawn)])
    last = max([now, *planned.values()])

    def x(moment: int) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (moment - first) / (last - first)

    picture = _SVG.format(_WIDTH, f"Backups of {cluster['name']}", about(backups))
    for kind, y in _ROWS.items():
        picture += _TEXT.format("name", 0, y + 6, _NAMES[kind])
    window = window_of(cluster, drawn, now)
    if window is not None:
        left = x(_moment(window[0]))
        words = "Any moment of this can be restored"
        picture += _WINDOW.format(left, _AXIS - 18, max(x(now) - left, 2), words)
    picture += _NOW.format(x(now), _AXIS)
    picture += _TEXT.format("quiet", _LEFT, _AXIS + 18, _exact(first))
    beside = _END_TEXT if x(now) > _MIDDLE else _TEXT
    picture += beside.format(
        "quiet", max(int(x(now)), _FIRST_ENDS), _AXIS + 18, f"now, {_exact(now)}"
    )
    for part in (*_needs(drawn, x), *_marks(drawn, x)):
        picture += part
    for kind, moment in planned.items():
        words = f"{_NAMES[kind]} backup, planned for {_exact(moment)}"
        picture += _mark("planned", x(moment), _ROWS[kind], words)
    for left, (name, words) in zip(_LEGENDS, _WORDS.items(), strict=True):
        picture += _mark(name, left, _LEGEND, "") + _TEXT.format(
            "small", left + 18, _LEGEND + 5, words
        )
    return picture + Markup("</svg>")


def about(backups: Sequence[Mapping[str, Any]]) -> str:
    """Describe the picture in words, for screen readers."""
    looks = [mark_of(each) for each in backups]
    bases = sum(each["kind"] == "base" for each in backups)
    said = (
        f"{bases} base and {len(backups) - bases} incremental backups:"
        f" {looks.count('proved')} restored as a proof, {looks.count('failed')} failed. The table"
        " below says the same."
    )
    return f"{said} The newest {MOST} are drawn." if len(backups) > MOST else said


def mark_of(backup: Mapping[str, Any]) -> str:
    """Return the name of the mark with which a backup is drawn."""
    if backup["status"] == "failed" or backup["verification"] == "failed":
        return "failed"
    if backup["status"] != "succeeded":
        return "waiting"
    return "proved" if backup["verified_at"] else "whole"


def _needs(drawn: Sequence[Mapping[str, Any]], x: Callable[[int], float]) -> Iterator[Markup]:
    """Yield lines from base backups to the incremental backups that need them.

    `x` maps a moment in microseconds to its x-coordinate.
    """
    at = {each["id"]: x(_when(each)) for each in drawn}
    for each in drawn:
        if each["base_id"] in at:
            base, own = at[each["base_id"]], at[each["id"]]
            yield _NEED.format(base, _ROWS["base"], _ROWS["incremental"], own)


def _marks(drawn: Sequence[Mapping[str, Any]], x: Callable[[int], float]) -> Iterator[Markup]:
    for each in drawn:
        look = mark_of(each)
        words = f"{_NAMES[each['kind']]} backup, {_exact(_when(each))}: {_told(each)}"
        yield _mark(look, x(_when(each)), _ROWS[each["kind"]], words)


def _told(backup: Mapping[str, Any]) -> str:
    if backup["status"] != "succeeded":
        return str(backup["status"])
    if backup["verification"] == "failed":
        return "whole, but it could not be restored"
    if backup["verified_at"]:
        return f"restored as a proof {_exact(_moment(backup['verified_at']))}"
    return "whole, never restored"


def _mark(look: str, x: float, y: int, words: str) -> Markup:
    title = _TITLE.format(words) if words else ""
    return _MARK.format(look, x, y, title, _SHAPES[look])


def _when(backup: Mapping[str, Any]) -> int:
    return _moment(backup["completed_at"] or backup["started_at"] or backup["created_at"])


def _moment(text: str) -> int:
    return moment_of(datetime.fromisoformat(text))


def _exact(moment: int) -> str:
    return datetime.fromtimestamp(moment / MICROSECONDS, UTC).strftime("%Y-%m-%d %H:%M UTC")

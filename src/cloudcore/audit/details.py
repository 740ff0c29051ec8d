"""Cut the details of an event to a bounded length."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import UNSET

CUT: Final = "cut"
"""The name under which cut details tell how many entries, or characters, each of them had."""
_FOR_CUT: Final = 1024
_MOST: Final = 32
"""Maximum number of details that are kept when they are too long."""


def cut_details(details: dict[str, Any], most: int) -> dict[str, Any]:
    """Return what fits of details, which are JSON values, into `most` characters of JSON.

    Short ones, such as counts, are whole; lists, objects and texts keep what they begin with. Under
    `CUT` stands the length that each cut one had; null for one that is not there at all.
    """
    kept: dict[str, Any] = {}
    lengths: dict[str, int | None] = {}
    room = most - _FOR_CUT
    for name, value in sorted(details.items(), key=lambda item: _length(item[1]))[:_MOST]:
        left = room - len(name) - 4
        part = _beginning(value, left)
        if part is not UNSET:
            kept[name] = part
            room = left - _length(part)
        if part != value:
            lengths[name] = len(value) if isinstance(value, str | list | dict) else None
    result = {**kept, CUT: lengths}
    return result if _length(result) <= most else {CUT: {}}


def _beginning(value: Any, room: int) -> Any:  # noqa: ANN401 - JSON
    """Return as much of a value as fits into `room` characters of JSON; UNSET for nothing."""
    if _length(value) <= room:
        return value
    if isinstance(value, str):
        return value[: max(0, room - 2) // 6] or UNSET  # a character is up to six in JSON
    if isinstance(value, list):
        return [part for _, part in _entries((("", each) for each in value), room)] or UNSET
    if isinstance(value, dict):
        return dict(_entries(value.items(), room)) or UNSET
    return UNSET


def _entries(entries: Iterable[tuple[str, Any]], room: int) -> Iterable[tuple[str, Any]]:
    """Yield the first entries that fit; the last of them may be cut."""
    left = room - 2
    for name, value in entries:
        left -= _length(name) + 2
        part = _beginning(value, left)
        if part is UNSET:
            return
        yield name, part
        if part != value:
            return
        left -= _length(part)


def _length(value: object) -> int:
    return len(msgspec.json.encode(value))

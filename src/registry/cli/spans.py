"""Spans of time as people write them: 90m, 12h, 30d, 4w."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime, timedelta
from typing import Final

_SPAN: Final = re.compile(r"([0-9]{1,6})([mhdw])")
_LONGEST: Final = timedelta(days=36500)
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def span(text: str) -> timedelta:
    """Parse a span; raise `argparse.ArgumentTypeError` for another text."""
    found = _SPAN.fullmatch(text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no span like 90m, 12h, 30d or 4w")
    parsed = timedelta(**{_UNITS[found[2]]: int(found[1])})
    if not timedelta() < parsed <= _LONGEST:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not between 1m and {_LONGEST.days}d; without this option it never ends"
        )
    return parsed


def time_after(length: timedelta) -> str:
    """Return the time that is `length` from now, as ``/v1`` reads it."""
    return f"{datetime.now(UTC) + length:%Y-%m-%dT%H:%M:%SZ}"

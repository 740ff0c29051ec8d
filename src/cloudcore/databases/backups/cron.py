"""Schedules of five cron fields, in UTC: ``minute hour day month weekday``.

The source is POSIX, `crontab`, with steps and names of days and months as in most crons: a field is
``*``, a number, a range or a list of these; ``/n`` selects every n-th value. If both day and
weekday are restricted, a date matches if either does.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from cloudcore.clock import MICROSECONDS

_MONTHS: Final = (
    *("jan", "feb", "mar", "apr", "may", "jun"),
    *("jul", "aug", "sep", "oct", "nov", "dec"),
)
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_PART: Final = re.compile(r"(\*|[a-z0-9]{1,3}(?:-[a-z0-9]{1,3})?)(?:/([0-9]{1,2}))?")
_FURTHEST_DAYS: Final = 8 * 366
"""The next 29 February may be this far away."""


class _Field(NamedTuple):
    name: str
    first: int
    last: int
    names: tuple[str, ...] = ()


_FIELDS: Final = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 7, _DAYS),
)


class Cron(NamedTuple):
    """A schedule, made by `read_cron`."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """Sunday is 0."""
    is_any_day: bool
    is_any_weekday: bool

    def after(self, moment: int) -> int:
        """Return the first matching moment after `moment`; both in microseconds since the epoch.

        Raise `ValueError` if no date ever matches.
        """
        start = datetime.fromtimestamp(moment // MICROSECONDS, UTC)
        start = start.replace(second=0) + timedelta(minutes=1)
        for number in range(_FURTHEST_DAYS):
            day = start.date() + timedelta(days=number)
            if day.month not in self.months or not self._has_day(day.day, day.isoweekday() % 7):
                continue
            for hour in sorted(self.hours):
                for minute in sorted(self.minutes):
                    found = datetime(day.year, day.month, day.day, hour, minute, tzinfo=UTC)
                    if found >= start:
                        return int(found.timestamp()) * MICROSECONDS
        raise ValueError("there is no such day in any year")

    def _has_day(self, day: int, weekday: int) -> bool:
        is_day, is_weekday = day in self.days, weekday in self.weekdays
        if self.is_any_day or self.is_any_weekday:
            return is_day and is_weekday
        return is_day or is_weekday


def read_cron(text: str) -> Cron:
    """Parse a schedule of five fields.

    Raise `ValueError`, with the reason, if a field is malformed or no date ever matches.
    """
    parts = text.lower().split()
    if len(parts) != len(_FIELDS):
        raise ValueError("it has five fields: minute hour day month weekday")
    minutes, hours, days, months, weekdays = map(_values, parts, _FIELDS)
    weekdays = frozenset(each % 7 for each in weekdays)
    is_any_day, is_any_weekday = parts[2].startswith("*"), parts[4].startswith("*")
    found = Cron(minutes, hours, days, months, weekdays, is_any_day, is_any_weekday)
    found.after(0)
    return found


def _values(text: str, of: _Field) -> frozenset[int]:
    values: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!a} is no {of.name}")
        first, _, last = match[1].partition("-")
        step = int(match[2] or 1)
        if first == "*":
            low, high = of.first, of.last
        else:
            low = _number(first, of)
            high = _number(last, of) if last else of.last if match[2] else low
        if low > high or step == 0:
            raise ValueError(f"{part!a} is no {of.name}")
        values.update(range(low, high + 1, step))
    return frozenset(values)


def _number(text: str, of: _Field) -> int:
    if text in of.names:
        return of.names.index(text) + of.first
    if text.isdecimal() and of.first <= int(text) <= of.last:
        return int(text)
    raise ValueError(f"{text!a} is no {of.name} ({of.first} to {of.last})")

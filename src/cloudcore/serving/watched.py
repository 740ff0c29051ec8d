"""What a server counts besides requests, and the gauges that an application measures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

Count = Callable[[str, int], None]
"""Adds an amount to the counted event of this key."""


class CountedEvent(NamedTuple):
    """Something that workers count, and the metric that shows it."""

    key: str
    metric: str
    """Without ``_total``; events of one metric differ in their labels' values."""
    documentation: str
    labels: Mapping[str, str] = {}
    scale: int = 1
    """What is counted is divided by this."""


class Watched(NamedTuple):
    """The events of an application, and the requests whose outcomes are events."""

    events: Sequence[CountedEvent] = ()
    outcomes: Mapping[tuple[str, bytes], str] = {}
    """By method and path: the first part of the keys ``<it>.succeeded``, ``.refused``, ``.limited``
    and ``.failed``."""


class Gauge(NamedTuple):
    """A value measured at a scrape."""

    metric: str
    documentation: str
    value: float
    labels: Mapping[str, str] = {}


QUOTAS: Final = "quota"
"""First part of the keys ``quota.<name>``: requests refused because a quota is reached."""

Measure = Callable[[], Awaitable[Sequence[Gauge]]]


def outcome_of(status: int) -> str:
    """Return the outcome that the status of an answer means."""
    if status == 429:
        return "limited"
    if status >= 500 or status == 0:
        return "failed"
    return "refused" if status >= 400 else "succeeded"


def count_nothing(_key: str, _amount: int) -> None:
    """Count nothing: this server has no counters."""


async def measure_nothing() -> Sequence[Gauge]:
    """Return no gauge."""
    return ()

"""Counters of a server, and gauges that the application measures.

Every worker counts for itself and publishes its counts in its own slot of shared memory, without
locks or system calls; a scrape adds up the slots. A restarted worker continues in the slot of its
predecessor.
"""

from __future__ import annotations

import mmap
from array import array
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from cloudcore.serving.planes import Planes
from cloudcore.serving.request_record import TLS_HELLO, RequestRecord

if TYPE_CHECKING:
    from cloudcore.serving.kept_answers import KeptAnswers


Count = Callable[[str, int], None]
"""Adds an amount to the counted event of this key."""


class CountedEvent(NamedTuple):
    """Something that workers count, and the metric that shows it."""

    key: str
    metric: str
    """Its name without ``_total``; events of one metric differ in their labels' values."""
    documentation: str
    labels: Mapping[str, str] = {}
    scale: int = 1
    """The metric shows the count divided by this number."""


class ApplicationEvents(NamedTuple):
    """The events that an application counts, and the requests whose outcomes are counted too."""

    events: Sequence[CountedEvent] = ()
    outcomes: Mapping[tuple[str, bytes], str] = {}
    """By method and path, the prefix of the keys ``<prefix>.succeeded``, ``.refused``, ``.limited``
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


def _outcome_of(status: int) -> str:
    """Return the outcome of a status: succeeded, refused, limited or failed (also for 0)."""
    if status == 429:
        return "limited"
    if status >= 500 or status == 0:
        return "failed"
    return "refused" if status >= 400 else "succeeded"


def count_nothing(_key: str, _amount: int) -> None:
    """Ignore the count: this server has no counters."""


async def measure_nothing() -> Sequence[Gauge]:
    """Return no gauges."""
    return ()


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "other")
STATUS_CLASSES = ("none", "1xx", "2xx", "3xx", "4xx", "5xx")
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 120.0)
"""Upper bounds of the duration histogram in seconds; a further bucket has no bound."""

KEPT_OUTCOMES = ("hit", "confirmed", "missed")
"""Outcomes of requests whose answers can be kept; see `KeptAnswers.take_counts`."""

_METHOD_INDEX = {name: index for index, name in enumerate(METHODS)}
_OTHER = len(METHODS) - 1
_CLASSES = len(STATUS_CLASSES)
_REQUESTS = len(METHODS) * _CLASSES
_DURATIONS = len(BUCKETS) + 1

_AT_DURATIONS = _REQUESTS
_AT_MICROSECONDS = _AT_DURATIONS + _DURATIONS
_AT_RECEIVED = _AT_MICROSECONDS + 1
_AT_SENT = _AT_RECEIVED + 1
_PLANE_CELLS = _AT_SENT + 1
_AT_IN_FLIGHT = 0
_AT_LIMITED = 1
_AT_KEPT = 2
_AT_KEPT_BYTES = _AT_KEPT + len(KEPT_OUTCOMES)
_AT_PLANES = _AT_KEPT_BYTES + 1
_CELL_BYTES = 8


@dataclass(slots=True)
class PlaneTotals:
    """The sums of one plane over all workers."""

    requests: dict[tuple[str, str], int] = field(default_factory=dict)
    durations: list[int] = field(default_factory=lambda: [0] * _DURATIONS)
    seconds: float = 0.0
    received: int = 0
    sent: int = 0


class Counters:
    """The slots of all workers in shared memory; create them before forking the workers."""

    def __init__(
        self,
        workers: int,
        planes: Planes,
        application_events: ApplicationEvents = ApplicationEvents(),  # noqa: B008 - immutable
    ) -> None:
        self._planes = planes
        self._slots = workers
        self.application_events = application_events
        self._at_events = _AT_PLANES + _PLANE_CELLS * len(planes.names)
        self._event_cells = {
            event.key: self._at_events + at for at, event in enumerate(application_events.events)
        }
        self._slot_cells = self._at_events + len(application_events.events)
        size = workers * self._slot_cells * _CELL_BYTES
        self._cells = memoryview(mmap.mmap(-1, size)).cast("Q")

    @property
    def planes(self) -> tuple[str, ...]:
        """Return the labels of the planes."""
        return self._planes.names

    def counter(self, slot: int) -> Counter:
        """Return the counter of worker number `slot`."""
        start = slot * self._slot_cells
        cells = self._cells[start : start + self._slot_cells]
        return Counter(cells, self._planes, self._event_cells, self.application_events.outcomes)

    @property
    def in_flight(self) -> int:
        """Return the number of requests in flight, as last published by the workers."""
        return self._sum(_AT_IN_FLIGHT)

    @property
    def limited(self) -> int:
        """Return the number of requests answered with 429."""
        return self._sum(_AT_LIMITED)

    @property
    def kept(self) -> dict[str, int]:
        """Map `KEPT_OUTCOMES` to counts of answers that were sent again or cached."""
        return {name: self._sum(_AT_KEPT + at) for at, name in enumerate(KEPT_OUTCOMES)}

    @property
    def kept_bytes(self) -> int:
        """Return the memory that all kept answers take, in bytes."""
        return self._sum(_AT_KEPT_BYTES)

    def counted(self, key: str) -> int:
        """Return the total count of an event."""
        return self._sum(self._event_cells[key])

    def totals(self, plane: str) -> PlaneTotals:
        """Return the sums of one plane over all workers."""
        start = _AT_PLANES + self._planes.names.index(plane) * _PLANE_CELLS
        totals = PlaneTotals()
        for index, method in enumerate(METHODS):
            for number, status_class in enumerate(STATUS_CLASSES):
                count = self._sum(start + index * _CLASSES + number)
                if count:
                    totals.requests[method, status_class] = count
        totals.durations = [self._sum(start + _AT_DURATIONS + at) for at in range(_DURATIONS)]
        totals.seconds = self._sum(start + _AT_MICROSECONDS) / 1e6
        totals.received = self._sum(start + _AT_RECEIVED)
        totals.sent = self._sum(start + _AT_SENT)
        return totals

    def _sum(self, cell: int) -> int:
        return sum(self._cells[slot * self._slot_cells + cell] for slot in range(self._slots))


class Counter:
    """Counts the requests of one worker and publishes the counts periodically."""

    def __init__(
        self,
        cells: memoryview,
        planes: Planes,
        events: Mapping[str, int],
        outcomes: Mapping[tuple[str, bytes], str],
    ) -> None:
        """Continue from the counts that the slot's previous worker published."""
        self._planes = planes
        self._events = events
        self._outcomes = outcomes
        self._published = cells
        self._cells = cells.tolist()  # counts faster than an array
        self._counting = Lock()

    def __call__(self, record: RequestRecord) -> None:
        """Count a finished request."""
        cells = self._cells
        cache = record.cache
        if cache is not None and cache.cells is not None:
            counted, durations, microseconds, sent = cache.cells
            seconds = record.seconds
            cells[counted] += 1
            cells[durations + bisect_left(BUCKETS, seconds)] += 1
            cells[microseconds] += int(seconds * 1e6)
            cells[sent] += record.sent
            return
        if record.reason == TLS_HELLO:
            return  # neither a request nor an error: what follows is counted
        start = _AT_PLANES + self._planes.counted_at[record.plane] * _PLANE_CELLS
        method = _METHOD_INDEX.get(record.method, _OTHER)
        counted = start + method * _CLASSES + record.status // 100
        cells[counted] += 1
        cells[start + _AT_DURATIONS + bisect_left(BUCKETS, record.seconds)] += 1
        cells[start + _AT_MICROSECONDS] += int(record.seconds * 1e6)
        if record.received:
            cells[start + _AT_RECEIVED] += record.received
        if record.sent:
            cells[start + _AT_SENT] += record.sent
        if record.status == 429:
            cells[_AT_LIMITED] += 1
        if record.event:
            self.count(record.event, 1)
        outcomes = self._outcomes.get((record.method, record.path))
        if outcomes is not None:
            self.count(f"{outcomes}.{_outcome_of(record.status)}", 1)
        elif cache is not None and not (record.received or record.event):
            # Later records that share the cache change no other cells.
            offsets = (_AT_DURATIONS, _AT_MICROSECONDS, _AT_SENT)
            cache.cells = (counted, *(start + offset for offset in offsets))

    def count(self, key: str, amount: int) -> None:
        """Count an event, on any thread; ignore an event that this server does not show."""
        cell = self._events.get(key)
        if cell is not None:
            with self._counting:
                self._cells[cell] += amount

    def publish(self, in_flight: int, kept: KeptAnswers | None = None) -> None:
        """Publish the counts and the number of requests in flight to the other workers.

        The counts of cached answers are read from `kept`.
        """
        cells = self._cells
        cells[_AT_IN_FLIGHT] = in_flight
        if kept is not None:
            for at, count in enumerate(kept.take_counts()):
                cells[_AT_KEPT + at] += count
            cells[_AT_KEPT_BYTES] = kept.bytes
        self._published[:] = memoryview(array("Q", cells))

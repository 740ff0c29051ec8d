"""Serve the counters in the text format of Prometheus, on a separate address."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from cloudcore.errors import Unavailable
from cloudcore.serving.asgi import Receive, Scope, Send
from cloudcore.serving.counters import (
    BUCKETS,
    CountedEvent,
    Counters,
    Gauge,
    Measure,
    measure_nothing,
)

MEASURED_SECONDS: Final = 5.0
"""Seconds for which measured gauges are reused, as measuring reads the database."""

_log = logging.getLogger(__name__)


class CountersCollector:
    """Exports the counters of all workers to prometheus_client."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families."""
        requests = CounterMetricFamily(
            "entrepot_http_requests",
            "Requests answered.",
            labels=("plane", "method", "status_class"),
        )
        durations = HistogramMetricFamily(
            "entrepot_http_request_seconds",
            "Time from a request's head to the end of its response.",
            labels=("plane",),
        )
        received = CounterMetricFamily(
            "entrepot_http_received_bytes", "Bytes of request bodies.", labels=("plane",)
        )
        sent = CounterMetricFamily(
            "entrepot_http_sent_bytes", "Bytes of response bodies.", labels=("plane",)
        )
        for plane in self._counters.planes:
            totals = self._counters.totals(plane)
            for (method, status_class), count in totals.requests.items():
                requests.add_metric((plane, method, status_class), count)
            durations.add_metric((plane,), _cumulate(totals.durations), totals.seconds)
            received.add_metric((plane,), totals.received)
            sent.add_metric((plane,), totals.sent)
        yield from (requests, durations, received, sent)
        yield CounterMetricFamily(
            "entrepot_http_limited",
            "Requests answered with 429, because a limit of rates or of open uploads is reached.",
            value=self._counters.limited,
        )
        events = self._counters.application_events.events
        values = ((each, self._counters.counted(each.key) / each.scale) for each in events)
        yield from _families(CounterMetricFamily, values)
        kept = CounterMetricFamily(
            "entrepot_kept_answers",
            "Answers given again from memory at once (hit), or after a look at what they depend on"
            " (confirmed); and answers that were made and kept (missed).",
            labels=("outcome",),
        )
        for outcome, count in self._counters.kept.items():
            kept.add_metric((outcome,), count)
        yield kept
        yield GaugeMetricFamily(
            "entrepot_kept_answers_bytes",
            "Memory of the answers that are kept to be given again.",
            value=self._counters.kept_bytes,
        )
        yield GaugeMetricFamily(
            "entrepot_http_requests_in_flight",
            "Requests being answered.",
            value=self._counters.in_flight,
        )


class GaugesCollector:
    """Exports the last measured gauges to prometheus_client."""

    def __init__(self) -> None:
        self.gauges: Sequence[Gauge] = ()
        self.is_measured = True

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families."""
        yield from _families(GaugeMetricFamily, ((each, each.value) for each in self.gauges))
        yield GaugeMetricFamily(
            "entrepot_measured",
            "1 if the gauges could be measured; 0: the database or the disk cannot be read.",
            value=int(self.is_measured),
        )


def _families(
    kind: type[CounterMetricFamily | GaugeMetricFamily],
    values: Iterable[tuple[CountedEvent | Gauge, float]],
) -> Iterable[Metric]:
    """Return one metric family per metric name, with a value for each set of labels."""
    families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
    for each, value in values:
        if each.metric not in families:
            families[each.metric] = kind(each.metric, each.documentation, labels=tuple(each.labels))
        families[each.metric].add_metric(tuple(each.labels.values()), value)
    return families.values()


def _cumulate(counts: list[int]) -> list[tuple[str, float]]:
    """Return the cumulative buckets of a histogram, as Prometheus requires."""
    bounds = (*map(str, BUCKETS), "+Inf")
    return [(bound, float(total)) for bound, total in zip(bounds, accumulate(counts), strict=True)]


class MetricsApplication:
    """An ASGI application that answers ``GET /metrics``."""

    def __init__(
        self,
        counters: Counters,
        measure: Measure = measure_nothing,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Show `counters`, and gauges from `measure`, called at most every `MEASURED_SECONDS`."""
        self._measure = measure
        self._monotonic = monotonic
        self._measure_at = 0.0
        self._measuring = asyncio.Lock()
        self._gauges = GaugesCollector()
        self._registry = CollectorRegistry()
        self._registry.register(CountersCollector(counters))
        self._registry.register(self._gauges)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Answer ``GET /metrics``; anything else is 404."""
        if scope["path"] == "/metrics" and scope["method"] in ("GET", "HEAD"):
            await self._renew_gauges()
            status, kind, body = 200, CONTENT_TYPE_LATEST, generate_latest(self._registry)
        else:
            status, kind, body = 404, "text/plain; charset=utf-8", b"not found\n"
        headers = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _renew_gauges(self) -> None:
        """Measure the gauges if they are older than `MEASURED_SECONDS`; on failure, drop them."""
        async with self._measuring:
            if self._monotonic() < self._measure_at:
                return
            try:
                self._gauges.gauges, self._gauges.is_measured = await self._measure(), True
            except (Unavailable, OSError) as error:
                _log.warning("the gauges could not be measured: %s", error)
                self._gauges.gauges, self._gauges.is_measured = (), False
            self._measure_at = self._monotonic() + MEASURED_SECONDS

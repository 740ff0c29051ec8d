"""Serve the counters in the text format of Prometheus, on their own address."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from cloudcore.serving.body import Receive, Scope, Send
from cloudcore.serving.counters import BUCKETS, Counters


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
            "entrepot_damaged_blobs",
            "Blobs, and manifests, found damaged by a pull or a push and not known to be.",
            value=self._counters.damaged,
        )
        yield GaugeMetricFamily(
            "entrepot_http_requests_in_flight",
            "Requests being answered.",
            value=self._counters.in_flight,
        )


def _cumulate(counts: list[int]) -> list[tuple[str, float]]:
    """Return the cumulative buckets of a histogram, as Prometheus requires."""
    total = 0
    buckets = []
    for bound, count in zip((*map(str, BUCKETS), "+Inf"), counts, strict=True):
        total += count
        buckets.append((bound, float(total)))
    return buckets


class MetricsApplication:
    """An ASGI application that answers ``GET /metrics``."""

    def __init__(self, counters: Counters) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(CountersCollector(counters))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Answer ``GET /metrics``; anything else is 404."""
        if scope["path"] == "/metrics" and scope["method"] in ("GET", "HEAD"):
            status, kind, body = 200, CONTENT_TYPE_LATEST, generate_latest(self._registry)
        else:
            status, kind, body = 404, "text/plain; charset=utf-8", b"not found\n"
        headers = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

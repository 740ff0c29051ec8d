"""Counters: counted by each worker, summed over all, shown in the text format of Prometheus."""

from __future__ import annotations

import asyncio
from typing import Any

from cloudcore.serving.body import Message
from cloudcore.serving.counters import Counters
from cloudcore.serving.metrics import MetricsApplication
from cloudcore.serving.record import TLS_HELLO, RequestRecord
from registry.planes import PLANES


def record(method: str, path: bytes, status: int, seconds: float) -> RequestRecord:
    """Return the record of a request cycle that received 3 bytes and sent 5."""
    return RequestRecord(0.0, seconds, "", method, path, b"", status, 3, 5, "", PLANES.find(path))


def scrape(counters: Counters, path: str = "/metrics") -> tuple[int, str]:
    """Return status and text of an answer of the metrics application."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError

    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": path}
    asyncio.run(MetricsApplication(counters)(scope, receive, send))
    return sent[0]["status"], sent[1]["body"].decode()


def test_the_counts_of_all_workers_are_added_up() -> None:
    counters = Counters(3, PLANES)
    for slot in range(3):
        counter = counters.counter(slot)
        counter(record("GET", b"/v2/a", 200, 0.002))
        counter(record("PUT", b"/v1/a", 404, 7.0))
        counter.count_damage()
        counter.publish(in_flight=slot)
    lines = scrape(counters)[1].splitlines()
    for line in (
        'entrepot_http_requests_total{method="GET",plane="data",status_class="2xx"} 3.0',
        'entrepot_http_requests_total{method="PUT",plane="control",status_class="4xx"} 3.0',
        'entrepot_http_request_seconds_bucket{le="0.001",plane="data"} 0.0',
        'entrepot_http_request_seconds_bucket{le="0.0025",plane="data"} 3.0',
        'entrepot_http_request_seconds_bucket{le="5.0",plane="control"} 0.0',
        'entrepot_http_request_seconds_bucket{le="+Inf",plane="control"} 3.0',
        'entrepot_http_request_seconds_count{plane="data"} 3.0',
        'entrepot_http_request_seconds_sum{plane="control"} 21.0',
        'entrepot_http_received_bytes_total{plane="data"} 9.0',
        'entrepot_http_sent_bytes_total{plane="control"} 15.0',
        "entrepot_http_requests_in_flight 3.0",
        "entrepot_damaged_blobs_total 3.0",
    ):
        assert line in lines


def test_a_restarted_worker_goes_on_counting() -> None:
    counters = Counters(1, PLANES)
    for _ in range(2):
        counter = counters.counter(0)
        counter(record("GET", b"/v2/", 200, 0.1))
        counter.publish(in_flight=0)
    assert counters.totals("data").requests == {("GET", "2xx"): 2}


def test_a_tls_hello_is_no_request() -> None:
    counters = Counters(1, PLANES)
    counter = counters.counter(0)
    counter(record("", b"", 400, 0.0)._replace(reason=TLS_HELLO))
    counter.publish(in_flight=0)
    assert counters.totals("control").requests == {}


def test_odd_requests_are_counted_too() -> None:
    counters = Counters(1, PLANES)
    counter = counters.counter(0)
    counter(record("", b"", 400, 0.0))
    counter(record("GET", b"/v2/", 0, 1e6))
    counter.publish(in_flight=0)
    assert counters.totals("control").requests == {("other", "4xx"): 1}
    assert counters.totals("data").requests == {("GET", "none"): 1}
    assert counters.totals("data").durations[-1] == 1


def test_only_metrics_are_served() -> None:
    assert scrape(Counters(1, PLANES), "/")[0] == 404

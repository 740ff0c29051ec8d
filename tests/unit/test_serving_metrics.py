"""Counters: counted by each worker, summed over all, shown in the text format of Prometheus."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from cloudcore.errors import Unavailable
from cloudcore.serving.asgi import Message
from cloudcore.serving.counters import ApplicationEvents, CountedEvent, Counters, Gauge
from cloudcore.serving.metrics import MetricsApplication
from cloudcore.serving.request_record import TLS_HELLO, RequestRecord
from registry.composition.planes import PLANES


def record(method: str, path: bytes, status: int, seconds: float) -> RequestRecord:
    """Return the record of a request cycle that received 3 bytes and sent 5."""
    return RequestRecord(0.0, seconds, "", method, path, b"", status, 3, 5, "", PLANES.find(path))


def scrape(counters: Counters, path: str = "/metrics") -> tuple[int, str]:
    """Return status and text of an answer of the metrics application."""
    return asked(MetricsApplication(counters), path)


def asked(application: MetricsApplication, path: str = "/metrics") -> tuple[int, str]:
    """Return status and text of an answer."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError

    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": path}
    asyncio.run(application(scope, receive, send))
    return sent[0]["status"], sent[1]["body"].decode()


def test_the_counts_of_all_workers_are_added_up() -> None:
    counters = Counters(3, PLANES)
    for slot in range(3):
        counter = counters.counter(slot)
        counter(record("GET", b"/v2/a", 200, 0.002))
        counter(record("PUT", b"/v1/a", 404, 7.0))
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


EVENTS: Final = ApplicationEvents(
    (
        CountedEvent("a.done", "entrepot_a", "A.", {"outcome": "done"}, scale=1000),
        CountedEvent("a.failed", "entrepot_a", "A.", {"outcome": "failed"}),
        *(
            CountedEvent(f"door.{outcome}", "entrepot_door", "D.", {"outcome": outcome})
            for outcome in ("succeeded", "refused", "limited", "failed")
        ),
    ),
    {("POST", b"/door"): "door"},
)


def test_events_of_all_workers_are_added_up() -> None:
    counters = Counters(2, PLANES, EVENTS)
    for slot in range(2):
        counter = counters.counter(slot)
        counter.count("a.done", 1500)
        counter.count("unknown", 1)
        counter.publish(in_flight=0)
    counters.counter(1).publish(in_flight=0)  # a restarted worker goes on
    lines = scrape(counters)[1].splitlines()
    assert 'entrepot_a_total{outcome="done"} 3.0' in lines
    assert 'entrepot_a_total{outcome="failed"} 0.0' in lines


def test_the_outcomes_of_a_watched_request_are_told_by_its_status() -> None:
    counters = Counters(1, PLANES, EVENTS)
    counter = counters.counter(0)
    for status in (200, 303, 400, 401, 403, 429, 500, 503, 0):
        counter(record("POST", b"/door", status, 0.1))
    counter(record("GET", b"/door", 200, 0.1))
    counter.publish(in_flight=0)
    outcomes = [counters.counted(f"door.{each}") for each in ("succeeded", "refused", "limited")]
    assert (*outcomes, counters.counted("door.failed")) == (2, 3, 1, 3)
    assert "entrepot_http_limited_total 1.0" in scrape(counters)[1].splitlines()


def test_an_answer_that_is_an_event_is_counted() -> None:
    counters = Counters(1, PLANES, EVENTS)
    counter = counters.counter(0)
    refused = record("POST", b"/v1/things", 403, 0.1)
    for event in ("a.done", "unknown", ""):
        counter(refused._replace(event=event))
    counter.publish(in_flight=0)
    assert counters.counted("a.done") == 1


class Measured:
    """An application whose gauge counts how often it was measured, or that cannot be."""

    def __init__(self) -> None:
        self.times = 0
        self.now = 100.0
        self.refusal: Exception | None = None
        self.application = MetricsApplication(Counters(1, PLANES), self, lambda: self.now)

    async def __call__(self) -> list[Gauge]:
        self.times += 1
        if self.refusal is not None:
            raise self.refusal
        return [Gauge("entrepot_times", "T.", self.times, {"of": each}) for each in ("a", "b")]

    def lines(self) -> list[str]:
        return asked(self.application)[1].splitlines()


def test_gauges_are_measured_at_most_every_few_seconds() -> None:
    measured = Measured()
    for now, times in ((100.0, 1), (104.9, 1), (105.0, 2), (105.1, 2)):
        measured.now = now
        assert f'entrepot_times{{of="b"}} {times}.0' in measured.lines()
        assert measured.times == times


@pytest.mark.parametrize("refusal", [Unavailable("busy"), OSError("gone")])
def test_what_cannot_be_measured_is_not_shown_as_before(refusal: Exception) -> None:
    measured = Measured()
    assert "entrepot_measured 1.0" in measured.lines()
    measured.refusal, measured.now = refusal, 200.0
    lines = measured.lines()
    assert "entrepot_measured 0.0" in lines
    assert not any(line.startswith("entrepot_times") for line in lines)
    assert "entrepot_http_requests_in_flight 0.0" in lines  # counters are shown all the same


def test_only_metrics_are_served() -> None:
    assert scrape(Counters(1, PLANES), "/")[0] == 404

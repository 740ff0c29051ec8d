"""What is told of requests: lines of the access log, and metrics."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from cloudcore.errors import Unavailable
from cloudcore.serving.asgi import Message
from cloudcore.serving.counters import ApplicationEvents, CountedEvent, Counters, Gauge
from cloudcore.serving.logs import AccessLog, JsonFormatter, configure_logging, loggable_query
from cloudcore.serving.metrics import MetricsApplication
from cloudcore.serving.planes import PLAIN
from cloudcore.serving.request_record import TLS_HELLO, RequestRecord
from registry.composition.planes import PLANES
from tests.kept_logs import kept_logs


def record(**changes: object) -> RequestRecord:
    """Return a record with some fields changed."""
    base = RequestRecord(
        1_790_000_000.5, 0.0123456, "id", "GET", b"/v2/", b"", 200, 1, 2, "127.0.0.1", 0
    )
    return base._replace(**changes)  # type: ignore[arg-type]


def written(path: Path, *records: RequestRecord) -> list[bytes]:
    """Return the lines the access log writes for `records`."""
    with path.open("w+b") as file:
        log = AccessLog(PLANES, file.fileno())
        log.start()
        for each in records:
            log(each)
        log.close()
        file.seek(0)
        return file.read().splitlines()


def test_a_line_says_who_asked_what_and_how_it_went(tmp_path: Path) -> None:
    (line,) = written(tmp_path / "log", record(path=b"/v2/a/b", query=b"n=1&secret=2"))
    assert json.loads(line) == {
        "time": "2026-09-21T14:13:20.500+00:00",
        "level": "info",
        "logger": "access",
        "request_id": "id",
        "method": "GET",
        "path": "/v2/a/b",
        "query": "n=1",
        "status": 200,
        "bytes_sent": 2,
        "bytes_received": 1,
        "duration_ms": 12.346,
        "client": "127.0.0.1",
        "scheme": "http",
        "principal": "",
        "user_agent": "",
    }


def test_a_line_names_the_caller_its_program_and_why_it_was_cut(tmp_path: Path) -> None:
    crn = "crn:service:identity:global:123:service-account/ci"
    named = record(principal=crn, user_agent=b"docker/28.2", reason="no byte came", status=408)
    (line,) = written(tmp_path / "log", named)
    told = json.loads(line)
    assert (told["principal"], told["user_agent"]) == (crn, "docker/28.2")
    assert (told["status"], told["reason"]) == (408, "no byte came")


def test_a_line_names_the_person_and_the_session_behind_a_role(tmp_path: Path) -> None:
    source = ("crn:iam::1:user/2", "ann@example.com", "deploy")
    (line,) = written(tmp_path / "log", record(principal="crn:iam::1:role/ops", source=source))
    told = json.loads(line)
    assert (told["source"], told["session_name"]) == ("ann@example.com", "deploy")
    (line,) = written(tmp_path / "log", record())
    assert not {"source", "session_name"} & json.loads(line).keys()


def test_foreign_text_cannot_steer_a_terminal(tmp_path: Path) -> None:
    nasty = bytes(range(0x20)) + bytes(range(0x7F, 0x100))
    (line,) = written(
        tmp_path / "log", record(user_agent=nasty, path=b"/" + nasty, query=b"n=" + nasty)
    )
    assert all(0x20 <= byte < 0x7F for byte in line)
    assert json.loads(line)["user_agent"].startswith("\0\1\2")


def test_a_user_agent_is_bounded(tmp_path: Path) -> None:
    (line,) = written(tmp_path / "log", record(user_agent=b"\xff" * 256))
    assert len(json.loads(line)["user_agent"]) == 256


def test_every_record_is_one_line_whatever_it_holds(tmp_path: Path) -> None:
    nasty = record(path=bytes(range(256)) * 100, method="A\nB\x1b[31m")
    lines = written(tmp_path / "log", *[nasty] * 300)
    assert len(lines) == 300
    for line in lines:
        assert len(json.loads(line)["path"]) == 1024
        assert not any(byte < 0x20 for byte in line)


@pytest.mark.parametrize(
    ("query", "logged"),
    [
        (b"", ""),
        (b"n=1&last=x", "n=1&last=x"),
        (b"token=abc", ""),
        (b"token", ""),
        (b"digest=sha256%3Aab&_state=xyz&tag=t", "digest=sha256%3Aab&tag=t"),
        (b"mount=m&from=f", "mount=m&from=f"),
        (b"N=1&n%20=2&nn=3", ""),
        (b"last=" + b"a" * 1000, "last=" + "a" * 507),
    ],
)  # fmt: skip
def test_only_harmless_parameters_are_logged(query: bytes, logged: str) -> None:
    for plane in PLANES.planes:
        assert loggable_query(query, plane.logged_parameters) == logged


def test_a_plane_that_names_no_parameters_logs_none(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+b") as file:
        log = AccessLog(PLAIN, file.fileno())
        log.start()
        log(record(query=b"n=1"))
        log.close()
        file.seek(0)
        assert json.loads(file.read())["query"] == ""


def test_a_traceback_is_a_field() -> None:
    try:
        int("line one\nline two")
    except ValueError:
        made = logging.LogRecord("x", logging.ERROR, "", 1, "a %s", ("b",), sys.exc_info())
    made.request_id = "id"
    text = JsonFormatter().format(made)
    line = json.loads(text)
    assert "\n" not in text
    assert (line["level"], line["logger"], line["message"]) == ("error", "x", "a b")
    assert line["request_id"] == "id"
    assert line["error"].startswith("Traceback (most recent call last):\n")
    assert "ValueError" in line["error"]


def test_a_command_in_a_test_does_not_change_the_logs_of_the_next() -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    with kept_logs():
        configure_logging("DEBUG")
        assert (root.level, root.handlers) != before
    assert (root.level, root.handlers) == before


def counted_record(method: str, path: bytes, status: int, seconds: float) -> RequestRecord:
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
        counter(counted_record("GET", b"/v2/a", 200, 0.002))
        counter(counted_record("PUT", b"/v1/a", 404, 7.0))
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
        counter(counted_record("GET", b"/v2/", 200, 0.1))
        counter.publish(in_flight=0)
    assert counters.totals("data").requests == {("GET", "2xx"): 2}


def test_a_tls_hello_is_no_request() -> None:
    counters = Counters(1, PLANES)
    counter = counters.counter(0)
    counter(counted_record("", b"", 400, 0.0)._replace(reason=TLS_HELLO))
    counter.publish(in_flight=0)
    assert counters.totals("control").requests == {}


def test_odd_requests_are_counted_too() -> None:
    counters = Counters(1, PLANES)
    counter = counters.counter(0)
    counter(counted_record("", b"", 400, 0.0))
    counter(counted_record("GET", b"/v2/", 0, 1e6))
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
        counter(counted_record("POST", b"/door", status, 0.1))
    counter(counted_record("GET", b"/door", 200, 0.1))
    counter.publish(in_flight=0)
    outcomes = [counters.counted(f"door.{each}") for each in ("succeeded", "refused", "limited")]
    assert (*outcomes, counters.counted("door.failed")) == (2, 3, 1, 3)
    assert "entrepot_http_limited_total 1.0" in scrape(counters)[1].splitlines()


def test_an_answer_that_is_an_event_is_counted() -> None:
    counters = Counters(1, PLANES, EVENTS)
    counter = counters.counter(0)
    refused = counted_record("POST", b"/v1/things", 403, 0.1)
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

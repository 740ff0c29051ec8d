"""The parts of the load tool that numbers depend on: parsing, percentiles, bodies, tables."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from benchmarks.bodies import BLOCK_BYTES, PATTERN_BLOCKS, BodyMaker
from benchmarks.exchanges import pull
from benchmarks.load import Measurement, Plan, measure, percentile
from benchmarks.polling import Request
from benchmarks.report import Outcome, comparison, document, findings, number, ratio, table
from benchmarks.rows import Row, Unit, select, size_name
from benchmarks.servers import KINDS, kind_of
from benchmarks.wire import Connection, ExchangeFailedError, parse_head


def outcome(unit: Unit, *measured: Measurement) -> Outcome:
    return Outcome(Row("a row", unit, lambda _: Plan()), measured)


def measurement(
    exchanges: int, seconds: float, latencies_ms: Sequence[float] = (1.0,), errors: int = 0
) -> Measurement:
    return Measurement(
        exchanges=exchanges,
        payload_bytes=exchanges * 10**6,
        seconds=seconds,
        latencies_ms=latencies_ms,
        client_cpu_seconds=0.1,
        server_cpu_seconds=0.5,
        peak_worker_bytes=64 << 20,
        errors=["broken"] * errors,
    )


class Answers:
    """A server that answers each request on one connection with the next of `answers`."""

    def __init__(self, *answers: bytes, pieces: int = 1 << 20) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests = b""
        self._thread = threading.Thread(target=self._serve, args=(answers, pieces))
        self._thread.start()

    def _serve(self, answers: tuple[bytes, ...], pieces: int) -> None:
        with self._listener, self._listener.accept()[0] as peer:
            for answer in answers:
                self.requests += peer.recv(65536)
                for at in range(0, len(answer), pieces):
                    peer.sendall(answer[at : at + pieces])

    def join(self) -> None:
        self._thread.join()


def test_a_head_gives_its_status_headers_and_length() -> None:
    head = parse_head(b"HTTP/1.1 202 Accepted\r\nContent-length:  12\r\nLOCATION: /v2/x \r\nA: b")
    assert (head.status, head.body_bytes, head.value("Location")) == (202, 12, "/v2/x")


def test_a_chunked_head_has_no_length_and_a_bare_one_has_no_body() -> None:
    assert parse_head(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked").body_bytes is None
    assert parse_head(b"HTTP/1.1 204 No Content").body_bytes == 0


def test_a_missing_header_fails_the_exchange() -> None:
    with pytest.raises(ExchangeFailedError, match="202 without Location"):
        parse_head(b"HTTP/1.1 202 Accepted\r\nX-Location: /v2/x").value("Location")


def test_what_is_not_http_fails_the_exchange() -> None:
    with pytest.raises(ExchangeFailedError, match=r"not an HTTP/1\.1 response"):
        parse_head(b"\x15\x03\x01")


@pytest.mark.parametrize("pieces", [1, 7, 1 << 20])
def test_responses_are_taken_apart_wherever_the_network_cuts_them(pieces: int) -> None:
    body = bytes(range(256)) * 64
    server = Answers(
        b"HTTP/1.1 200 OK\r\nContent-Length: 16384\r\n\r\n" + body,
        b"HTTP/1.1 200 OK\r\nContent-Length: 16384\r\n\r\n" + body,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n"
        b"0\r\nTrailer: t\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 16384\r\n\r\n" + body,
        pieces=pieces,
    )
    connection = Connection(server.url)
    request = connection.request("GET", "/v2/")
    taken: list[object] = []
    for take in (connection.discard, connection.body, connection.body, connection.body_digest):
        connection.send(request)
        taken.append(take(connection.head()))
    connection.close()
    server.join()
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    assert taken == [16384, body, b"abc0123456789", digest]


def test_a_body_that_ends_early_fails_the_exchange() -> None:
    server = Answers(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345")
    connection = Connection(server.url)
    connection.send(connection.request("GET", "/v2/"))
    with pytest.raises(ExchangeFailedError, match="closed 5 bytes early"):
        connection.discard(connection.head())
    connection.close()
    server.join()


def sent_by(send: Callable[[Connection], None]) -> bytes:
    """Return what `send` puts on the wire."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = Connection(f"http://127.0.0.1:{listener.getsockname()[1]}")
        received = bytearray()

        def receive() -> None:
            with listener.accept()[0] as peer:
                while data := peer.recv(1 << 20):
                    received.extend(data)

        thread = threading.Thread(target=receive)
        thread.start()
        send(connection)
        connection.close()
        thread.join()
    return bytes(received)


def unchunked(data: bytes) -> bytes:
    body = bytearray()
    at = 0
    while True:
        end = data.index(b"\r\n", at)
        size = int(data[at:end], 16)
        body += data[end + 2 : end + 2 + size]
        at = end + 2 + size + 2
        if size == 0:
            assert at == len(data)
            return bytes(body)


@pytest.fixture(scope="module")
def maker() -> BodyMaker:
    return BodyMaker()


SIZES = [4096, BLOCK_BYTES, BLOCK_BYTES + 17, 3 * BLOCK_BYTES, (PATTERN_BLOCKS + 2) * BLOCK_BYTES]


@pytest.mark.parametrize("size_bytes", SIZES)
def test_a_plain_body_is_what_its_digest_says(maker: BodyMaker, size_bytes: int) -> None:
    body = maker.make(size_bytes)
    sent = sent_by(lambda connection: maker.send_plain(connection, b"head", body))
    assert (sent[:4], len(sent)) == (b"head", 4 + size_bytes)
    assert f"sha256:{hashlib.sha256(sent[4:]).hexdigest()}" == body.digest


@pytest.mark.parametrize("size_bytes", SIZES)
def test_a_chunked_body_is_what_its_digest_says(maker: BodyMaker, size_bytes: int) -> None:
    body = maker.make(size_bytes)
    sent = unchunked(sent_by(lambda connection: maker.send_chunked(connection, b"", body)))
    assert len(sent) == size_bytes
    assert f"sha256:{hashlib.sha256(sent).hexdigest()}" == body.digest


def test_no_body_is_made_twice(maker: BodyMaker) -> None:
    assert len({maker.make(4096).digest for _ in range(100)}) == 100


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 1.0), (50, 2.0), (75, 3.0), (76, 4.0), (99, 4.0), (100, 4.0)]
)
def test_a_percentile_is_a_value_that_was_measured(percent: float, expected: float) -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], percent) == expected


def test_there_is_no_percentile_of_nothing() -> None:
    assert math.isnan(percentile([], 50))


def test_ratios_above_one_are_better_for_rates_and_for_latencies() -> None:
    fast, slow = measurement(100, 1, [1.0]), measurement(50, 1, [3.0])
    assert ratio(outcome(Unit.REQUESTS, fast), outcome(Unit.REQUESTS, slow)) == 2
    assert ratio(outcome(Unit.MEGABYTES, fast), outcome(Unit.MEGABYTES, slow)) == 2
    assert ratio(outcome(Unit.P99, fast), outcome(Unit.P99, slow)) == 3
    assert ratio(outcome(Unit.MEMORY, fast), outcome(Unit.MEMORY, slow)) is None


def test_a_ratio_is_the_median_over_rounds_of_one_time() -> None:
    ours = outcome(Unit.REQUESTS, *(measurement(count, 1) for count in (100, 10, 90)))
    peer = outcome(Unit.REQUESTS, *(measurement(count, 1) for count in (50, 5, 90)))
    assert ratio(ours, peer) == 2


def test_one_error_makes_a_row_invalid() -> None:
    ours = outcome(Unit.REQUESTS, measurement(100, 1), measurement(100, 1, errors=1))
    peer = outcome(Unit.REQUESTS, measurement(100, 1), measurement(100, 1))
    assert ratio(ours, peer) is None
    assert "INVALID" in comparison([ours], [peer]).splitlines()[2]
    written = json.loads(json.dumps(document({}, {"ours": [ours], "peer": [peer]}, "ours")))
    assert written["rows"][0]["targets"]["ours"]["valid"] is False
    assert written["rows"][0]["targets"]["ours"]["errors"] == ["broken"]


def test_the_table_marks_what_is_slower_than_the_peer() -> None:
    ours = outcome(Unit.MEGABYTES, measurement(50, 1))
    peer = outcome(Unit.MEGABYTES, measurement(100, 1))
    line = comparison([ours], [peer]).splitlines()[2]
    assert line.split()[2:8] == ["MB/s", "50.0", "100", "0.50", "<", "1.00"]


def test_a_table_is_aligned() -> None:
    assert table([["a", "b"], ["long", "1"], ["c", "22"]]).splitlines() == [
        "a      b",
        "--------",
        "long   1",
        "c     22",
    ]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "-"), (math.nan, "-"), (1234.5, "1,234"), (12.34, "12.3"), (0.123, "0.12")],
)
def test_numbers_have_about_three_digits(value: float | None, shown: str) -> None:
    assert number(value) == shown


def test_new_tags_in_a_full_repository_are_compared_with_the_first_ones() -> None:
    rows = {row.name: row for row in select(full=False)}
    first = rows["manifest PUT, new tag, first ones x4"]
    late = rows["manifest PUT, new tag, after 10,000 x4"]
    memory = rows["memory, 16 x push of 1 GiB"]
    found = [
        Outcome(first, [measurement(100, 1)]),
        Outcome(late, [measurement(95, 1)]),
        Outcome(memory, [measurement(1, 1)]),
    ]
    assert list(findings(found)) == [
        "new tags x4 after 10,000 at 0.95 of the rate of the first ones",
        "64.0 MiB at most while 16 clients moved blobs of 1 GiB",
    ]


def test_rows_have_names_of_their_own_and_the_quick_ones_are_among_them() -> None:
    full, quick = select(full=True), select(full=False)
    names = [row.name for row in full]
    assert len(set(names)) == len(names)
    assert {row.name for row in quick} < set(names)
    named = [size_name(1 << shift) for shift in (3, 12, 26, 30)]
    assert named == ["8 B", "4 KiB", "64 MiB", "1 GiB"]


class Handler(BaseHTTPRequestHandler):
    """Answers every GET with 10,000 bytes, in two writes, and every HEAD with their length."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "10000")
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()
        self.wfile.write(bytes(10000))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


@pytest.fixture
def fixed_answers() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def request(method: str = "GET", status: int = 200, length: int = 10000) -> Request:
    return Request(f"{method} / HTTP/1.1\r\n\r\n".encode(), status, length, method != "HEAD")


def test_clients_repeat_their_exchange_and_the_costs_are_seen(fixed_answers: str) -> None:
    plan = Plan([lambda connection: pull(connection, request())] * 2)
    measured = measure(partial(Connection, fixed_answers), [os.getpid()], plan, seconds=0.1)
    assert measured.errors == []
    assert measured.exchanges == len(measured.latencies_ms) >= 2
    assert measured.payload_bytes == measured.exchanges * 10000
    assert measured.server_cpu_seconds is not None
    assert measured.server_cpu_seconds > 0
    assert measured.peak_worker_bytes is not None
    assert measured.peak_worker_bytes > 1 << 20


def test_a_kind_has_settings_behind_it() -> None:
    kind, settings = kind_of("entrepot:INLINE_MAX_BYTES:0:SEALING:off")
    assert kind is KINDS["entrepot"]
    assert settings == {"INLINE_MAX_BYTES": "0", "SEALING": "off"}


def test_headers_of_a_connection_are_in_every_request() -> None:
    server = Answers(b"HTTP/1.1 204 No Content\r\n\r\n")
    connection = Connection(server.url, "Authorization: Bearer x")
    request = connection.request("GET", "/v2/", "Accept: y")
    assert request.endswith(b"\r\nAuthorization: Bearer x\r\nAccept: y\r\n\r\n")
    connection.send(request)
    connection.head()
    connection.close()
    server.join()


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_polled_clients_repeat_their_requests(fixed_answers: str, method: str) -> None:
    plan = Plan(requests=[itertools.repeat(request(method)) for _ in range(3)])
    measured = measure(partial(Connection, fixed_answers), [], plan, seconds=0.1)
    assert measured.errors == []
    assert measured.exchanges >= 3
    assert measured.server_cpu_seconds is None


@pytest.mark.parametrize("wrong", [request(status=206), request(length=9999)])
def test_a_wrong_answer_is_an_error(fixed_answers: str, wrong: Request) -> None:
    polled = measure(
        partial(Connection, fixed_answers),
        [],
        Plan(requests=[itertools.repeat(wrong)]),
        seconds=0.1,
    )
    assert "200 of 10000 bytes" in polled.errors[0]
    plan = Plan([lambda connection: pull(connection, wrong)])
    assert (
        "200 of 10000 bytes"
        in measure(partial(Connection, fixed_answers), [], plan, seconds=0.1).errors[0]
    )

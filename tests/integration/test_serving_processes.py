"""Whole server processes: readiness, workers, drain on SIGTERM, metrics, logs."""

from __future__ import annotations

import json
import os
import signal
import socket
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from tests.integration.serving_app import Client
from tests.integration.serving_process import ENDS_LATE, SHUTDOWN_SECONDS
from tests.loaded import Program, program_environment, start_loaded
from tests.postgresql import free_port
from tests.waiting import until


@dataclass
class Process:
    """A process of `tests.integration.serving_process`."""

    program: Program
    stdout: IO[str]
    stderr: IO[str]
    port: int = 0
    started: int = 0  # how many workers had started when it was ready

    def connect(self) -> Client:
        return Client(socket.create_connection(("127.0.0.1", self.port), 60))

    def ask(self, target: str) -> bytes:
        with self.connect() as client:
            return client.ask(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())[1]

    def stop(self, sig: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal; return the exit status and what the process logged."""
        self.program.send_signal(sig)
        status, _, log = self.end()
        return status, log

    def end(self) -> tuple[int, str, str]:
        """Wait until it and its workers have ended; return its exit status, words and log."""
        with self.stdout, self.stderr:
            output = self.stdout.read()  # all of them have it
            status = self.program.wait(60)
            self.stderr.seek(0)
            return status, output, self.stderr.read()


def start(workers: int, metrics_port: int = 0, **env: str) -> Process:
    """Start a server and wait until it is ready."""
    process = launch(workers, metrics_port, **env)
    for line in process.stdout:
        if line.startswith("http://"):
            process.port = int(line.rsplit(":", 1)[1])
            return process
        process.started += line == "started\n"
    raise AssertionError(process.end())


def launch(workers: int, metrics_port: int = 0, **env: str) -> Process:
    reading, writing = os.pipe()
    log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - until the end
    try:
        with Path(os.devnull).open() as nothing:
            started = start_loaded(
                "tests.integration.serving_process",
                (str(workers), str(metrics_port)),
                {**program_environment(), **env},
                (nothing.fileno(), writing, log.fileno()),
            )
    finally:
        os.close(writing)
    return Process(started, os.fdopen(reading), log)


@pytest.fixture(params=[1, 2])
def process(request: pytest.FixtureRequest) -> Iterator[Process]:
    server = start(request.param)
    try:
        assert server.started == request.param, "it is ready when all workers are"
        yield server
    finally:
        if server.program.poll() is None:
            server.program.kill()
            server.end()


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_it_drains_and_exits_with_0(process: Process, sig: int) -> None:
    with process.connect() as idle, process.connect() as partial, process.connect() as busy:
        idle.ask(b"GET /v2/ HTTP/1.1\r\nHost: a\r\n\r\n")
        partial.send(b"GET /v2/ HTTP/1.1\r\n")
        busy.send(b"PUT /v2/sink HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n")
        busy.send(b"Content-Length: 10\r\n\r\n")
        assert busy.line().startswith(b"HTTP/1.1 100")
        assert busy.line() == b"\r\n"
        process.program.send_signal(sig)
        assert idle.is_closed()
        assert partial.is_closed()
        busy.send(b"0123456789")
        assert busy.response()[0].status == 201
        assert busy.is_closed()
    status, output, log = process.end()
    assert status == 0, log
    assert output.count("stopped") == process.started
    assert "Traceback" not in log


def leaving(workers: int, seconds: str) -> Process:
    """Start a server, and let it begin to leave."""
    process = start(workers, LEAVING=seconds)
    process.program.send_signal(signal.SIGTERM)
    for _ in range(workers):
        assert process.stdout.readline() == "leaving\n"
    return process


@pytest.mark.parametrize("workers", [1, 2])
def test_it_serves_on_while_balancers_turn_away_then_drains(workers: int) -> None:
    process = leaving(workers, "2")
    assert process.ask("/v2/a") == b"/v2/a?"
    status, output, log = process.end()
    assert status == 0, log
    assert output.count("stopped") == workers


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_waits_for_no_balancer(workers: int) -> None:
    status, log = start(workers, LEAVING="3600").stop(signal.SIGINT)
    assert status == 0, log


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("again", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_time_to_leave(workers: int, again: int) -> None:
    process = leaving(workers, "3600")
    process.program.send_signal(again)
    status, output, log = process.end()
    if again == signal.SIGTERM or workers == 1:  # a second SIGINT kills workers, as ever
        assert status == 0, log
        assert output.count("stopped") == workers


def test_a_signal_that_comes_after_the_drain_is_no_failure() -> None:
    status, log = start(2, LATE="1").stop(signal.SIGINT)
    assert status == 0, log
    assert log.count(ENDS_LATE) == 2


def test_workers_of_a_killed_supervisor_drain_at_once() -> None:
    process = start(2, LEAVING="3600", DRAIN="1")
    process.program.kill()
    _, output, _ = process.end()  # until the workers have ended, and so closed the pipe
    assert output.count("stopped") == 2
    with pytest.raises(OSError, match=r"refused|reset"):
        process.ask("/v2/")


def test_what_does_not_end_in_time_is_cut(process: Process) -> None:
    with process.connect() as client:
        client.send(b"GET /v2/slow?60 HTTP/1.1\r\nHost: a\r\n\r\n")
        client.send(b"GET /v2/slow?60 HTTP/1.1\r\nHost: a\r\n\r\n")
        assert process.stdout.readline() == "slow\n"
        started = time.monotonic()
        status, log = process.stop()
        assert SHUTDOWN_SECONDS <= time.monotonic() - started < 50
        assert status == 0
        assert "cut 1 exchanges" in log


def test_an_application_that_does_not_stop_is_cut_with_one_line() -> None:
    status, log = start(1, STUCK="1").stop()
    assert status == 0
    assert log.count("cut the application, which did not stop in time") == 1
    assert "Traceback" not in log


def test_a_dead_worker_is_replaced() -> None:
    process = start(2)
    try:
        with process.connect() as client:
            client.send(b"GET /die HTTP/1.1\r\nHost: a\r\n\r\n")
            assert client.is_closed()
        seen: set[bytes] = set()

        def are_two() -> bool:
            clients = [process.connect() for _ in range(8)]
            for client in clients:
                client.send(b"GET /v1 HTTP/1.1\r\nHost: a\r\n\r\n")
            seen.update(client.response()[1] for client in clients)
            for client in clients:
                client.close()
            return len(seen) == 2

        until(are_two)
    finally:
        status, log = process.stop()
    assert status == 0
    assert "died (status 7)" in log


@pytest.mark.parametrize("workers", [1, 2])
def test_an_application_that_cannot_start_ends_the_server(workers: int) -> None:
    status, _, log = launch(workers, BROKEN="1").end()
    assert status != 0
    assert "no database" in log


def test_workers_that_serve_end_at_once_if_another_cannot_start(tmp_path: Path) -> None:
    status, output, log = launch(2, LEAVING="3600", ALONE=str(tmp_path / "taken")).end()
    assert status != 0, log
    assert output.count("stopped") == 1


def test_what_a_killed_supervisor_left_under_way_keeps_no_worker() -> None:
    """Uploads that go on would take the processors from the server that starts in its place."""
    process = start(2, DRAIN="3600")
    with process.connect() as client:
        client.send(b"GET /v2/slow?3600 HTTP/1.1\r\nHost: a\r\n\r\n")
        assert process.stdout.readline() == "slow\n"
        process.program.kill()
        process.end()  # as above


def test_metrics_are_summed_over_workers() -> None:
    port = free_port()
    process = start(2, port)
    try:
        for _ in range(30):
            process.ask("/v2/a")
        assert process.ask("/").isdigit()
        wanted = {
            'entrepot_http_requests_total{method="GET",plane="data",status_class="2xx"} 30.0',
            'entrepot_http_request_seconds_count{plane="control"} 1.0',
            'entrepot_http_sent_bytes_total{plane="data"} 180.0',
        }

        def are_shown() -> bool:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
                return wanted <= set(response.read().decode().splitlines())

        until(are_shown)  # each worker tells its counts ten times a second, at moments of its own
    finally:
        assert process.stop()[0] == 0


def test_the_log_is_json_and_keeps_secrets_out() -> None:
    process = start(1)
    process.ask("/v2/a?token=SECRET&n=5&last=b%0Ac&state=SECRET")
    with process.connect() as client:
        fields = b"Authorization: Bearer SECRET\r\n"
        client.ask(b"GET /v2/crash HTTP/1.1\r\nHost: a\r\n" + fields + b"\r\n")
    _, log = process.stop()
    lines = [json.loads(line) for line in log.splitlines()]
    access = [line for line in lines if line["logger"] == "access"]
    assert [line["path"] for line in access] == ["/v2/a", "/v2/crash"]
    assert [line["status"] for line in access] == [200, 500]
    assert access[0]["query"] == "n=5&last=b%0Ac"
    (failure,) = [line for line in lines if "error" in line]
    assert failure["request_id"] == access[1]["request_id"]
    assert failure["error"].startswith("Traceback")
    assert "SECRET" not in log

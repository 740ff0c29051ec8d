"""Whole server processes: readiness, workers, drain on SIGTERM, metrics, logs."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cloudcore.serving.body import Receive, Scope, Send
from cloudcore.serving.dispatch import Dispatcher
from cloudcore.serving.limits import ServerLimits
from cloudcore.serving.logs import configure_logging
from cloudcore.serving.server import run
from registry.planes import PLANES, dispatcher
from tests.integration.serving_app import Client, SampleApplication, answer
from tests.postgresql import free_port

ROOT = Path(__file__).resolve().parents[2]
SHUTDOWN_SECONDS = 2.0


async def control_plane(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the process id; take part in the lifespan."""
    if scope["type"] == "lifespan":
        for _ in range(2):
            message = await receive()
            await send({"type": message["type"] + ".complete"})
        return
    if scope["path"] == "/die":
        os._exit(7)
    await answer(send, 200, str(os.getpid()).encode())


async def note(word: str) -> None:
    """Print a word for the test to see."""
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


def tell_leaving() -> None:
    """Tell the test that this worker is about to stop."""
    os.write(1, b"leaving\n")  # in a handler of a signal


async def stick() -> None:
    """Never end by itself."""
    await asyncio.Event().wait()


class TellingApplication(SampleApplication):
    """Says for the test to see that a slow request is being answered."""

    async def get_slow(self, scope: Scope, receive: Receive, send: Send) -> None:
        await note("slow")
        await super().get_slow(scope, receive, send)


def make_application() -> Dispatcher:
    """Return what each worker serves."""
    if os.environ.get("BROKEN"):
        raise LookupError("no database")
    if alone := os.environ.get("ALONE"):
        try:
            Path(alone).mkdir()
        except FileExistsError:
            time.sleep(1)  # the first one serves by then
            raise
    made = dispatcher(
        TellingApplication(),
        control_plane,
        startup=functools.partial(note, "started"),
        shutdown=stick if os.environ.get("STUCK") else functools.partial(note, "stopped"),
    )
    made.leave = tell_leaving
    return made


def announce(url: str) -> None:
    """Print the URL."""
    sys.stdout.write(url + "\n")
    sys.stdout.flush()


def main(workers: int, metrics_port: int) -> int:
    """Run the server of this test."""
    configure_logging()
    return run(
        make_application,
        planes=PLANES,
        workers=workers,
        limits=ServerLimits(
            shutdown_seconds=float(os.environ.get("DRAIN", SHUTDOWN_SECONDS)),
            leaving_seconds=float(os.environ.get("LEAVING", "0")),
        ),
        metrics_bind=("127.0.0.1", metrics_port) if metrics_port else None,
        on_ready=announce,
    )


@dataclass
class Process:
    """A running server process."""

    popen: subprocess.Popen[str]
    port: int
    started: int  # how many workers had started when it was ready

    def connect(self) -> Client:
        """Open a connection."""
        return Client(socket.create_connection(("127.0.0.1", self.port), 20))

    def ask(self, target: str) -> bytes:
        """Get a page on a new connection."""
        with self.connect() as client:
            return client.ask(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())[1]

    def stop(self, sig: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal; return the exit status and what the process logged."""
        self.popen.send_signal(sig)
        _, log = self.popen.communicate(timeout=60)
        return self.popen.returncode, log


def start(workers: int, metrics_port: int = 0, **env: str) -> Process:
    """Start a server and wait until it is ready."""
    popen = launch(workers, metrics_port, **env)
    assert popen.stdout is not None
    started = 0
    for line in popen.stdout:
        if line.startswith("http://"):
            return Process(popen, int(line.rsplit(":", 1)[1]), started)
        started += line == "started\n"
    raise AssertionError(popen.communicate()[1])


def launch(workers: int, metrics_port: int = 0, **env: str) -> subprocess.Popen[str]:
    """Start a server process."""
    code = "import sys; from tests.integration.test_serving_processes import main; "
    return subprocess.Popen(
        [sys.executable, "-c", code + f"sys.exit(main({workers}, {metrics_port}))"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", **env},
    )


@pytest.fixture(params=[1, 2])
def process(request: pytest.FixtureRequest) -> Iterator[Process]:
    """Run a server with one worker, and one with two."""
    server = start(request.param)
    yield server
    if server.popen.poll() is None:
        server.popen.kill()
        server.popen.communicate()


def test_it_is_ready_when_all_workers_are(process: Process, request: pytest.FixtureRequest) -> None:
    assert process.started == request.node.callspec.params["process"]
    assert process.ask("/v2/a") == b"/v2/a?"


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_it_drains_and_exits_with_0(process: Process, sig: int) -> None:
    with process.connect() as idle, process.connect() as partial, process.connect() as busy:
        idle.ask(b"GET /v2/ HTTP/1.1\r\nHost: a\r\n\r\n")
        partial.send(b"GET /v2/ HTTP/1.1\r\n")
        busy.send(b"PUT /v2/sink HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n")
        busy.send(b"Content-Length: 10\r\n\r\n")
        assert busy.line().startswith(b"HTTP/1.1 100")
        assert busy.line() == b"\r\n"
        process.popen.send_signal(sig)
        assert idle.is_closed()
        assert partial.is_closed()
        busy.send(b"0123456789")
        assert busy.response()[0].status == 201
        assert busy.is_closed()
    output, log = process.popen.communicate(timeout=20)
    assert process.popen.returncode == 0, log
    assert output.count("stopped") == process.started
    assert "Traceback" not in log


@pytest.mark.parametrize("workers", [1, 2])
def test_it_serves_on_while_balancers_turn_away_then_drains(workers: int) -> None:
    process = start(workers, LEAVING="2")
    assert process.popen.stdout is not None
    process.popen.send_signal(signal.SIGTERM)
    for _ in range(workers):
        assert process.popen.stdout.readline() == "leaving\n"
    assert process.ask("/v2/a") == b"/v2/a?"
    output, log = process.popen.communicate(timeout=30)
    assert process.popen.returncode == 0, log
    assert output.count("stopped") == workers


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("again", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_time_to_leave(workers: int, again: int) -> None:
    process = start(workers, LEAVING="3600")
    assert process.popen.stdout is not None
    process.popen.send_signal(signal.SIGTERM)
    for _ in range(workers):
        assert process.popen.stdout.readline() == "leaving\n"
    process.popen.send_signal(again)
    output, log = process.popen.communicate(timeout=30)
    if again == signal.SIGTERM or workers == 1:  # a second SIGINT kills workers, as ever
        assert process.popen.returncode == 0, log
        assert output.count("stopped") == workers


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_waits_for_no_balancer(workers: int) -> None:
    status, log = start(workers, LEAVING="3600").stop(signal.SIGINT)
    assert status == 0, log


def test_workers_of_a_killed_supervisor_drain_at_once() -> None:
    process = start(2, LEAVING="3600", DRAIN="1")
    process.popen.kill()
    output, _ = process.popen.communicate(timeout=30)  # until the workers have closed the pipe
    assert output.count("stopped") == 2


def test_what_does_not_end_in_time_is_cut(process: Process) -> None:
    with process.connect() as client:
        client.send(b"GET /v2/slow?60 HTTP/1.1\r\nHost: a\r\n\r\n")
        client.send(b"GET /v2/slow?60 HTTP/1.1\r\nHost: a\r\n\r\n")
        assert process.popen.stdout is not None
        assert process.popen.stdout.readline() == "slow\n"
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
        deadline = time.monotonic() + 20
        with process.connect() as client:
            client.send(b"GET /die HTTP/1.1\r\nHost: a\r\n\r\n")
            assert client.is_closed()
        seen: set[bytes] = set()
        while len(seen) < 2 and time.monotonic() < deadline:
            clients = [process.connect() for _ in range(8)]
            for client in clients:
                client.send(b"GET /v1 HTTP/1.1\r\nHost: a\r\n\r\n")
            seen |= {client.response()[1] for client in clients}
            for client in clients:
                client.close()
        assert len(seen) == 2
    finally:
        status, log = process.stop()
    assert status == 0
    assert "died (status 7)" in log


@pytest.mark.parametrize("workers", [1, 2])
def test_an_application_that_cannot_start_ends_the_server(workers: int) -> None:
    popen = launch(workers, BROKEN="1")
    _, log = popen.communicate(timeout=30)
    assert popen.returncode not in (0, None)
    assert "no database" in log


def test_workers_that_serve_end_at_once_if_another_cannot_start(tmp_path: Path) -> None:
    popen = launch(2, LEAVING="3600", ALONE=str(tmp_path / "taken"))
    output, log = popen.communicate(timeout=30)
    assert popen.returncode not in (0, None), log
    assert output.count("stopped") == 1


def test_workers_end_when_their_supervisor_is_killed() -> None:
    process = start(2)
    process.popen.kill()
    process.popen.communicate(timeout=20)  # the pipes close only when the workers have ended
    with pytest.raises(OSError, match=r"refused|reset"):
        process.ask("/v2/")


def test_what_a_killed_supervisor_left_under_way_keeps_no_worker() -> None:
    """Uploads that go on would take the processors from the server that starts in its place."""
    process = start(2, DRAIN="3600")
    with process.connect() as client:
        client.send(b"GET /v2/slow?3600 HTTP/1.1\r\nHost: a\r\n\r\n")
        assert process.popen.stdout is not None
        assert process.popen.stdout.readline() == "slow\n"
        process.popen.kill()
        process.popen.communicate(timeout=60)  # as above


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
        deadline = time.monotonic() + 60
        shown: set[str] = set()
        # Each worker tells its counts ten times a second, at moments of its own.
        while not wanted <= shown and time.monotonic() < deadline:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
                shown = set(response.read().decode().splitlines())
        assert wanted <= shown
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

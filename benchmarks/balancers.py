"""Measure the embedded proxy of load balancers beside HAProxy: ``python -m benchmarks.balancers``.

One replica of each by its driver, in turn, before the same target, which is HAProxy itself and
answers by rule. Clients are threads of this process; theirs is the same work on both sides.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.processes import cpu_seconds, private_bytes, process_tree
from benchmarks.servers import free_port
from benchmarks.tls import _certificate, _wait
from cloudcore.loadbalancer.driver import (
    BackendPlan,
    HealthPlan,
    ListenerPlan,
    ProxyPlan,
    TargetPlan,
)
from cloudcore.loadbalancer.embedded import EmbeddedDriver
from cloudcore.loadbalancer.haproxy import PROGRAM_PATH, HaproxyDriver
from cloudcore.loadbalancer.replicas import Replicas
from cloudcore.nodes import detached_process

ADDRESS: Final = "127.0.0.1"
_TARGET: Final = """defaults
    mode http
    timeout client 60s
frontend target
    bind 127.0.0.1:{port}
    http-request return status 200 content-type text/plain string "{body}"
"""


class Side(NamedTuple):
    """A replica, and what was measured of it."""

    name: str
    ports: dict[str, int]
    pids: list[int]
    rates: dict[str, list[float]]
    processor: dict[str, list[float]]


def _one(connect: Callable[[], HTTPConnection], *, is_kept: bool, until: float) -> int:
    """Return how many requests one client was answered."""
    count, connection = 0, connect()
    while time.monotonic() < until:
        connection.request("GET", "/")
        answer = connection.getresponse()
        if answer.status != 200 or len(answer.read()) != 1024:
            raise ConnectionError(f"status {answer.status}")
        count += 1
        if not is_kept:
            connection.close()
            connection = connect()
    connection.close()
    return count


def _measure(side: Side, row: str, trust: ssl.SSLContext, clients: int, seconds: float) -> None:
    protocol, is_kept = ROWS[row]
    port = side.ports[protocol]

    def connect() -> HTTPConnection:
        if protocol == "https":
            return HTTPSConnection(ADDRESS, port, context=trust)
        return HTTPConnection(ADDRESS, port)

    counts: list[int] = []
    began, before = time.monotonic(), cpu_seconds(side.pids)
    until = began + seconds
    threads = [
        threading.Thread(target=lambda: counts.append(_one(connect, is_kept=is_kept, until=until)))
        for _ in range(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(counts) < clients:
        raise ConnectionError(f"{side.name}: a client failed at {row}")
    total = sum(counts)
    side.rates.setdefault(row, []).append(total / (time.monotonic() - began))
    side.processor.setdefault(row, []).append((cpu_seconds(side.pids) - before) / total)


ROWS: Final = {
    "HTTP, kept connections": ("http", True),
    "HTTP, a connection a request": ("http", False),
    "HTTPS, kept connections": ("https", True),
    "HTTPS, a connection a request": ("https", False),
    "TCP, a connection a request": ("tcp", False),
}


@contextlib.contextmanager
def _target(folder: Path) -> Iterator[int]:
    port = free_port()
    (folder / "target.cfg").write_text(_TARGET.format(port=port, body="x" * 1024))
    program = shutil.which("haproxy", path=PROGRAM_PATH) or "haproxy"
    with subprocess.Popen((program, "-db", "-f", str(folder / "target.cfg"))) as started:
        try:
            _wait(port)
            yield port
        finally:
            started.terminate()


@contextlib.contextmanager
def _side(kind: type[Replicas], folder: Path, target: int, pem: bytes) -> Iterator[Side]:
    driver = kind(folder / kind.__name__, drain_seconds=1)
    ports = {protocol: free_port() for protocol in ("http", "https", "tcp")}
    one = (TargetPlan("one", ADDRESS, target),)
    health = HealthPlan("tcp")
    plan = ProxyPlan(
        "benchmark",
        ADDRESS,
        (
            ListenerPlan(ports["http"], "http", "web"),
            ListenerPlan(ports["https"], "https", "web", "own.pem"),
            ListenerPlan(ports["tcp"], "tcp", "stream"),
        ),
        (BackendPlan("web", "http", health, one), BackendPlan("stream", "tcp", health, one)),
    )
    try:
        asyncio.run(driver.apply(plan, 0, {"own.pem": pem}, None))
        kept = detached_process.find(folder / kind.__name__ / "benchmark" / "0")
        assert kept is not None
        yield Side(kind.configuration_name.partition(".")[0], ports, process_tree(kept.pid), {}, {})
    finally:
        asyncio.run(driver.stop("benchmark", 0))


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.balancers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--clients", type=int, default=4)
    options = parser.parse_args()
    if shutil.which("haproxy", path=PROGRAM_PATH) is None:
        sys.stderr.write("haproxy is not installed\n")
        return 2
    with tempfile.TemporaryDirectory() as made, contextlib.ExitStack() as stack:
        folder = Path(made)
        certificate, key = _certificate(folder)
        trust = ssl.create_default_context(cafile=certificate)
        trust.check_hostname = False
        target = stack.enter_context(_target(folder))
        pem = certificate.read_bytes() + key.read_bytes()
        first, second = (
            stack.enter_context(_side(kind, folder, target, pem))
            for kind in (EmbeddedDriver, HaproxyDriver)
        )
        for row in ROWS:
            for number in range(options.rounds):
                for side in (first, second) if number % 2 == 0 else (second, first):
                    _measure(side, row, trust, options.clients, options.seconds)
        _print(first, second)
    return 0


def _print(first: Side, second: Side) -> None:
    print(f"{'row':32} {'embedded':>9} {'haproxy':>9} {'ratio':>6} {'cpu us':>7} {'haproxy':>7}")
    for row, rates in first.rates.items():
        ratio = statistics.median(a / b for a, b in zip(rates, second.rates[row], strict=True))
        used, used_theirs = (
            statistics.median(side.processor[row]) * 1e6 for side in (first, second)
        )
        mine, theirs = statistics.median(rates), statistics.median(second.rates[row])
        print(f"{row:32} {mine:9.0f} {theirs:9.0f} {ratio:6.2f} {used:7.0f} {used_theirs:7.0f}")
    for side in (first, second):
        print(f"{side.name}: {sum(private_bytes(pid) for pid in side.pids) / (1 << 20):.1f} MiB")


if __name__ == "__main__":
    sys.exit(main())

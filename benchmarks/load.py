"""Run several clients at once against one server, and measure both."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from benchmarks.exchanges import Exchange, read
from benchmarks.polling import PolledClients, Request
from benchmarks.processes import Watch
from benchmarks.wire import Connection, ExchangeFailedError

SAMPLE_SECONDS = 0.05


@dataclass(frozen=True)
class Plan:
    """The clients of one measurement.

    Each of `exchanges` is a client with a thread, which repeats its exchange until the time is up,
    or until an error. Each of `requests` is a client of an event loop, for small reads. Each of
    `background` is a client with a thread that is not measured, and is disconnected at the end.
    """

    exchanges: Sequence[Exchange] = ()
    requests: Sequence[Iterator[Request]] = ()
    background: Sequence[Exchange] = ()
    check: Callable[[], None] = lambda: None  # checks afterwards that the server did the work
    beside: Callable[[], AbstractContextManager[None]] = nullcontext  # what else goes on meanwhile


@dataclass(frozen=True)
class Measurement:
    """One measurement of one row on one server."""

    exchanges: int
    payload_bytes: int
    seconds: float
    latencies_ms: Sequence[float]  # sorted
    client_cpu_seconds: float
    background_bytes: int = 0
    server_cpu_seconds: float | None = None
    peak_worker_bytes: int | None = None
    peak_tree_bytes: int | None = None
    peak_anonymous_bytes: int | None = None
    errors: list[str] = field(default_factory=list)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile of an `ordered` sequence; nan if it is empty."""
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


class _Clients:
    """The threads of one measurement; they start together."""

    def __init__(self, connect: Callable[[], Connection], plan: Plan, seconds: float) -> None:
        self._new_connection = connect
        self.seconds = seconds
        self.latencies: list[float] = []
        self.payload_bytes = 0
        self.ended_at = 0.0
        self.errors: list[str] = []
        self.cutting = False
        self.measured = [
            threading.Thread(target=self._measured, args=(self._connect(), exchange), daemon=True)
            for exchange in plan.exchanges
        ]
        if plan.requests:
            polled = PolledClients([(self._connect(), endless) for endless in plan.requests])
            self.measured.append(threading.Thread(target=self._polled, args=(polled,), daemon=True))
        self.background_connections = [self._connect() for _ in plan.background]
        self.background = [
            threading.Thread(target=self._repeated, args=pair, daemon=True)
            for pair in zip(self.background_connections, plan.background, strict=True)
        ]
        self._begin = threading.Barrier(len(self.measured) + len(self.background) + 1)
        self._lock = threading.Lock()

    def begin(self) -> float:
        """Start all clients at once; return the time (`time.perf_counter`)."""
        for thread in (*self.measured, *self.background):
            thread.start()
        self._begin.wait()
        return time.perf_counter()

    def cut(self) -> int:
        """Disconnect the background clients; return the number of bytes they received."""
        self.cutting = True
        received = sum(connection.received_bytes for connection in self.background_connections)
        for connection in self.background_connections:
            connection.abort()
        for thread in self.background:
            thread.join()
        return received

    def _connect(self) -> Connection:
        connection = self._new_connection()
        read(connection, "/v2/")
        return connection

    def _measured(self, connection: Connection, exchange: Exchange) -> None:
        latencies: list[float] = []
        payload_bytes = 0
        self._begin.wait()
        now = time.perf_counter()
        deadline = now + self.seconds
        while now < deadline or not latencies:
            started_at = now
            try:
                payload_bytes += exchange(connection)
            except (OSError, ExchangeFailedError) as error:
                self.errors.append(str(error))
                break
            now = time.perf_counter()
            latencies.append(now - started_at)
        connection.close()
        with self._lock:
            self.latencies += latencies
            self.payload_bytes += payload_bytes
            self.ended_at = max(self.ended_at, now)

    def _polled(self, clients: PolledClients) -> None:
        self._begin.wait()
        try:
            clients.run(self.seconds)
        except (OSError, ExchangeFailedError) as error:
            self.errors.append(str(error))
        clients.close()
        self.latencies += clients.latencies
        self.payload_bytes += clients.payload_bytes
        self.ended_at = clients.ended_at

    def _repeated(self, connection: Connection, exchange: Exchange) -> None:
        self._begin.wait()
        try:
            while not self.cutting:
                exchange(connection)
        except (OSError, ExchangeFailedError) as error:
            if not self.cutting:
                self.errors.append(f"in the background: {error}")
        connection.close()


def measure(
    connect: Callable[[], Connection], pids: Sequence[int], plan: Plan, seconds: float
) -> Measurement:
    """Run `plan` for about `seconds` against the server that `connect` connects to.

    `pids` are its main processes: its own, and its database's; none if unknown.
    """
    watch = Watch(pids) if pids else None
    clients = _Clients(connect, plan, seconds)
    with plan.beside():
        if watch:
            watch.start()
        client_cpu = -time.process_time()
        began_at = clients.begin()
        _wait(clients, watch, began_at + seconds)
        client_cpu += time.process_time()
        if watch:
            watch.stop()
    background_bytes = clients.cut()
    ended_at = clients.ended_at or time.perf_counter()
    ordered = sorted(seconds * 1000 for seconds in clients.latencies)
    return Measurement(
        exchanges=len(ordered),
        payload_bytes=clients.payload_bytes,
        seconds=ended_at - began_at,
        latencies_ms=ordered,
        client_cpu_seconds=client_cpu,
        background_bytes=background_bytes,
        server_cpu_seconds=watch.cpu_seconds if watch else None,
        peak_worker_bytes=watch.peak_worker_bytes if watch else None,
        peak_tree_bytes=watch.peak_tree_bytes if watch else None,
        peak_anonymous_bytes=watch.peak_anonymous_bytes if watch else None,
        errors=clients.errors,
    )


def _wait(clients: _Clients, watch: Watch | None, until: float) -> None:
    """Sample the memory until all measured clients have ended, or, if there are none, `until`."""
    while any(thread.is_alive() for thread in clients.measured) or (
        not clients.measured and time.perf_counter() < until
    ):
        if watch:
            watch.sample()
        time.sleep(SAMPLE_SECONDS)

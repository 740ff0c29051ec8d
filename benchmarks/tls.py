"""Measure TLS in process beside haproxy in front of the plain port: ``python -m benchmarks.tls``.

Both are the same registry with the same certificate, measured in turn: A B, B A, … Clients are
threads of this process, which shares the machine's cores; theirs is the same work on both sides.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import shutil
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.processes import cpu_seconds, process_tree
from benchmarks.servers import ROOT, free_port

MIB: Final = 1 << 20
BLOB_BYTES: Final = 64 * MIB
SMALL_BYTES: Final = 4096
PIECE: Final = 256 * 1024
REPOSITORY: Final = "dev/bench"
_HAPROXY: Final = """global
    maxconn 4096
    ssl-default-bind-options ssl-min-ver TLSv1.2
defaults
    mode http
    timeout connect 5s
    timeout client 300s
    timeout server 900s
    option http-keep-alive
frontend https
    bind 127.0.0.1:{port} ssl crt {both}
    http-request set-header X-Forwarded-For %[src]
    http-request set-header X-Forwarded-Proto https
    default_backend entrepot
backend entrepot
    server one 127.0.0.1:{upstream}
"""


class Connection:
    """A kept-alive connection of TLS."""

    def __init__(self, port: int, trust: ssl.SSLContext) -> None:
        raw = socket.create_connection(("127.0.0.1", port), 60)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = trust.wrap_socket(raw, server_hostname="localhost")
        self._sink = bytearray(PIECE)

    def ask(self, head: str, *body: bytes | memoryview) -> tuple[int, bytes, int]:
        """Send a request; return the status, the head of the answer, and its body's length."""
        self.socket.sendall(f"{head}\r\nHost: localhost\r\n\r\n".encode())
        for part in body:
            view = memoryview(part)
            for at in range(0, len(view), PIECE):
                self.socket.sendall(view[at : at + PIECE])
        got = b""
        while (end := got.find(b"\r\n\r\n")) < 0:
            part = self.socket.recv(16384)
            if not part:
                raise ConnectionError("the server closed")
            got += part
        left = length = _length(got[:end])
        left -= len(got) - end - 4
        while left:
            count = self.socket.recv_into(self._sink, min(left, PIECE))
            if not count:
                raise ConnectionError("the server closed")
            left -= count
        return int(got[9:12]), got[:end], length


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


class Bodies:
    """Blobs of one size that differ in their end alone."""

    def __init__(self, size: int) -> None:
        self._start = os.urandom(size - 32)
        self._hash = hashlib.sha256(self._start)

    def make(self) -> tuple[str, tuple[bytes, bytes]]:
        """Return the digest of a new blob, and its parts."""
        end = os.urandom(32)
        whole = self._hash.copy()
        whole.update(end)
        return whole.hexdigest(), (self._start, end)


@dataclass
class Side:
    """A registry behind one port of TLS."""

    name: str
    port: int
    pids: list[int]
    rates: dict[str, list[float]] = field(default_factory=dict)
    processor: dict[str, list[float]] = field(default_factory=dict)
    pulled: dict[int, str] = field(default_factory=dict)


def push(connection: Connection, bodies: Bodies, size: int) -> str:
    """Push a new blob in one POST and one PUT; return its digest."""
    digest, parts = bodies.make()
    status, head, _ = connection.ask(
        f"POST /v2/{REPOSITORY}/blobs/uploads/ HTTP/1.1\r\nContent-Length: 0"
    )
    where = next(
        line.partition(b":")[2].strip().decode()
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"location:")
    )
    mark = "&" if "?" in where else "?"
    status, head, _ = connection.ask(
        f"PUT {where}{mark}digest=sha256:{digest} HTTP/1.1\r\nContent-Length: {size}\r\n"
        "Content-Type: application/octet-stream",
        *parts,
    )
    if status != 201:
        raise ConnectionError(f"push: {status} {head!r}")
    return digest


def pull(connection: Connection, digest: str, size: int) -> None:
    """Pull a blob."""
    status, _, length = connection.ask(f"GET /v2/{REPOSITORY}/blobs/sha256:{digest} HTTP/1.1")
    if (status, length) != (200, size):
        raise ConnectionError(f"pull: {status}, {length} bytes")


def measure(side: Side, trust: ssl.SSLContext, row: str, clients: int, seconds: float) -> None:
    """Let clients repeat what a row says for some seconds; note the rate, and processor time."""
    size = BLOB_BYTES if "64 MiB" in row else SMALL_BYTES
    if size not in side.pulled:
        side.pulled[size] = push(Connection(side.port, trust), _bodies(size), size)
    done, errors, lock = [0], list[Exception](), threading.Lock()
    begin = threading.Barrier(clients + 1)
    deadline = [0.0]

    def client() -> None:
        connection = Connection(side.port, trust)
        begin.wait()
        try:
            while time.perf_counter() < deadline[0]:
                if row.startswith("handshake"):
                    connection = Connection(side.port, trust)
                    pull(connection, side.pulled[size], size)
                elif row.startswith("push"):
                    push(connection, _bodies(size), size)
                else:
                    pull(connection, side.pulled[size], size)
                with lock:
                    done[0] += 1
        except (OSError, ConnectionError) as error:
            errors.append(error)

    threads = [threading.Thread(target=client, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    started, used = time.perf_counter(), _processor_seconds(side)
    deadline[0] = started + seconds
    begin.wait()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - started
    used = _processor_seconds(side) - used
    if errors:
        raise errors[0]
    side.rates.setdefault(row, []).append(done[0] / took)
    side.processor.setdefault(row, []).append(used / max(1, done[0]))


def _processor_seconds(side: Side) -> float:
    return cpu_seconds([each for pid in side.pids for each in process_tree(pid)])


_made: dict[int, Bodies] = {}


def _bodies(size: int) -> Bodies:
    return _made.setdefault(size, Bodies(size))


ROWS: Final = {
    "pull 64 MiB x16": 16,
    "push 64 MiB x16": 16,
    "pull 64 MiB x1": 1,
    "push 64 MiB x1": 1,
    "pull 4 KiB x16": 16,
    "handshake and pull 4 KiB x16": 16,
}


@contextlib.contextmanager
def _process(command: list[str], port: int) -> Iterator[int]:
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        start_new_session=True,
    ) as started:
        try:
            _wait(port)
            yield started.pid
        finally:
            started.send_signal(signal.SIGTERM)


def _wait(port: int) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def _ours(folder: Path, port: int, workers: int, *more: str) -> list[str]:
    command = [sys.executable, "-m", "registry", "dev", "--data", str(folder)]
    return [*command, "--port", str(port), "--workers", str(workers), *more]


def _certificate(folder: Path) -> tuple[Path, Path]:
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
            ),
            *("-nodes", "-keyout", str(key), "-out", str(certificate), "-days", "30"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tls", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--data", type=Path, default=None, help="folder for the data")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    options = parser.parse_args()
    program = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        sys.stderr.write("haproxy is not installed\n")
        return 2
    with tempfile.TemporaryDirectory(dir=options.data) as made, contextlib.ExitStack() as stack:
        folder = Path(made)
        certificate, key = _certificate(folder)
        (folder / "both.pem").write_bytes(certificate.read_bytes() + key.read_bytes())
        trust = ssl.create_default_context(cafile=certificate)
        ours, plain, proxied = free_port(), free_port(), free_port()
        files = ("--tls-certificate", str(certificate), "--tls-key", str(key))
        command = _ours(folder / "ours", ours, options.workers, *files)
        first = Side("in process", ours, [stack.enter_context(_process(command, ours))])
        command = _ours(folder / "plain", plain, options.workers)
        behind = stack.enter_context(_process(command, plain))
        config = folder / "haproxy.cfg"
        config.write_text(_HAPROXY.format(port=proxied, both=folder / "both.pem", upstream=plain))
        before = stack.enter_context(_process([program, "-db", "-f", str(config)], proxied))
        second = Side("haproxy", proxied, [behind, before])
        rows = {name: count for name, count in ROWS.items() if options.only in name}
        for row, clients in rows.items():
            for number in range(options.rounds):
                for side in (first, second) if number % 2 == 0 else (second, first):
                    measure(side, trust, row, clients, options.seconds)
        _print(first, second)
    return 0


def _print(first: Side, second: Side) -> None:
    print(f"{'row':32} {'ours':>9} {'haproxy':>9} {'ratio':>6} {'cpu ours':>9} {'haproxy':>9}")
    for row, rates in first.rates.items():
        other = second.rates[row]
        ratio = statistics.median(a / b for a, b in zip(rates, other, strict=True))
        scale, unit = (64 * MIB / 1e6, "MB/s") if "64 MiB" in row else (1, "/s")
        mine, theirs = statistics.median(rates) * scale, statistics.median(other) * scale
        used, used_theirs = (
            statistics.median(side.processor[row]) * 1000 for side in (first, second)
        )
        print(
            f"{row:32} {mine:9.0f} {theirs:9.0f} {ratio:6.2f} {used:7.2f}ms {used_theirs:7.2f}ms"
            f"  {unit}"
        )


if __name__ == "__main__":
    sys.exit(main())

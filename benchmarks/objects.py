"""Measure S3 GET and PUT beside file servers without S3: ``python -m benchmarks.objects``.

No S3 server is among Debian's packages that runs without a cluster. So the peers serve plain files
over HTTP: nginx (WebDAV), which is the ceiling (it checks no signature, hashes nothing and flushes
nothing to the disk), and ``rclone serve webdav``. All are measured in turn: A B C, C B A, …
Clients are threads of this process, over presigned URLs, so that signing costs them nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from hmac import digest
from pathlib import Path
from typing import Final
from urllib.parse import quote

from benchmarks.processes import cpu_seconds, memory_bytes, process_tree
from benchmarks.servers import ROOT, free_port
from benchmarks.signed_in import initialize
from benchmarks.wire import Connection

MIB: Final = 1 << 20
SIZES: Final = {"64 MiB": 64 * MIB, "4 KiB": 4096}
HUGE_BYTES: Final = 5 << 30
_PIECE: Final = os.urandom(MIB)
_NGINX: Final = """daemon off; pid {folder}/pid; error_log {folder}/error;
worker_processes {workers};
events {{ worker_connections 256; }}
http {{
  access_log off; sendfile on; tcp_nopush on; client_max_body_size 0;
  client_body_temp_path {folder}/body;
  server {{
    listen 127.0.0.1:{port}; keepalive_requests 1000000;
    location / {{ root {folder}/files; dav_methods PUT DELETE; create_full_put_path on; }}
  }}
}}
"""


@dataclass
class Server:
    """A server, and how an object of it is addressed."""

    name: str
    port: int
    target: Callable[[str, str], str]
    """Returns path and query of a method for a key."""
    pid: int = 0
    rates: dict[str, list[float]] = field(default_factory=dict)
    processor: dict[str, list[float]] = field(default_factory=dict)

    def connect(self) -> Connection:
        """Return a new connection."""
        return Connection(f"http://127.0.0.1:{self.port}")

    def put(self, connection: Connection, key: str, size: int) -> None:
        """Store an object."""
        head = connection.request("PUT", self.target("PUT", key), f"Content-Length: {size}")
        connection.send(head, more=True)
        for left in range(size, 0, -MIB):
            connection.send(_PIECE[: min(left, MIB)])
        self._ended(connection)

    def get(self, connection: Connection, key: str, size: int) -> None:
        """Read an object."""
        connection.send(connection.request("GET", self.target("GET", key)))
        if self._ended(connection) != size:
            raise ConnectionError(f"{self.name}: the object is short")

    def _ended(self, connection: Connection) -> int:
        head = connection.head()
        if head.status not in (200, 201, 204):
            raise ConnectionError(f"{self.name}: {head.status} {connection.body(head)[:300]!r}")
        return connection.discard(head)

    @property
    def pids(self) -> list[int]:
        """Return its processes."""
        return process_tree(self.pid)


class Presigner:
    """Makes presigned URLs of one key pair, once for each key."""

    def __init__(self, port: int, key_id: str, secret: str, bucket: str = "bench") -> None:
        self._host = f"127.0.0.1:{port}"
        self._bucket = bucket
        self._date = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        self._scope = f"{self._date[:8]}/local/s3/aws4_request"
        self._credential = quote(f"{key_id}/{self._scope}", "")
        self._key = f"AWS4{secret}".encode()
        for part in self._scope.split("/"):
            self._key = digest(self._key, part.encode(), "sha256")
        self._made: dict[tuple[str, str], str] = {}

    def __call__(self, method: str, key: str) -> str:
        """Return path and query of a signed request."""
        made = self._made.get((method, key))
        if made is None:
            made = self._made[method, key] = self._sign(
                method, f"/{self._bucket}/{key}" if key else f"/{self._bucket}"
            )
        return made

    def _sign(self, method: str, path: str) -> str:
        query = (
            f"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={self._credential}"
            f"&X-Amz-Date={self._date}&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
        )
        text = f"{method}\n{path}\n{query}\nhost:{self._host}\n\nhost\nUNSIGNED-PAYLOAD"
        hashed = sha256(text.encode()).hexdigest()
        signed = f"AWS4-HMAC-SHA256\n{self._date}\n{self._scope}\n{hashed}"
        return (
            f"{path}?{query}&X-Amz-Signature={digest(self._key, signed.encode(), 'sha256').hex()}"
        )


def measure(server: Server, row: str, size: int, clients: int, seconds: float) -> None:
    """Let clients repeat what a row says for some seconds; note rate and processor time."""
    done, errors, lock = [0], list[Exception](), threading.Lock()
    begin, deadline = threading.Barrier(clients + 1), [0.0]
    act = server.put if row.startswith("PUT") else server.get
    with contextlib.closing(server.connect()) as connection:
        for number in range(clients):
            server.put(connection, f"{size}-{number}", size)

    def client(number: int) -> None:
        with contextlib.closing(server.connect()) as connection:
            begin.wait()
            try:
                while time.perf_counter() < deadline[0]:
                    act(connection, f"{size}-{number}", size)
                    with lock:
                        done[0] += 1
            except OSError as error:
                errors.append(error)

    threads = [threading.Thread(target=client, args=(n,), daemon=True) for n in range(clients)]
    for thread in threads:
        thread.start()
    started, used = time.perf_counter(), cpu_seconds(server.pids)
    deadline[0] = started + seconds
    begin.wait()
    for thread in threads:
        thread.join()
    took, used = time.perf_counter() - started, cpu_seconds(server.pids) - used
    if errors:
        raise errors[0]
    server.rates.setdefault(row, []).append(done[0] / took)
    server.processor.setdefault(row, []).append(used / max(1, done[0]))


def measure_memory(server: Server) -> None:
    """Send and read one object of 5 GiB; print the peak of the largest process before and after."""
    with contextlib.closing(server.connect()) as connection:
        for size in (MIB, HUGE_BYTES):
            started = time.perf_counter()
            server.put(connection, "huge", size)
            middle = time.perf_counter()
            server.get(connection, "huge", size)
            rates = [
                size / MIB / (b - a) for a, b in ((started, middle), (middle, time.perf_counter()))
            ]
            peak = max(memory_bytes(pid).get("VmHWM", 0) for pid in server.pids)
            print(
                f"{server.name}: {size // MIB} MiB: PUT {rates[0]:.0f} MiB/s, GET {rates[1]:.0f}"
                f" MiB/s, peak of a process {peak / MIB:.0f} MiB"
            )


@contextlib.contextmanager
def _started(server: Server, command: list[str]) -> Iterator[Server]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        server.pid = process.pid
        try:
            deadline = time.monotonic() + 30
            while True:
                try:
                    socket.create_connection(("127.0.0.1", server.port), 1).close()
                    break
                except OSError:
                    if time.monotonic() > deadline or process.poll() is not None:
                        raise
                    time.sleep(0.05)
            yield server
        finally:
            process.send_signal(signal.SIGTERM)


@contextlib.contextmanager
def _ours(folder: Path, workers: int) -> Iterator[Server]:
    port = free_port()
    pair = initialize(folder, "bench", {**os.environ, "PYTHONPATH": str(ROOT / "src")}).pair
    sign = Presigner(port, *pair)
    command = [sys.executable, "-m", "registry", "serve", "--data", str(folder)]
    more = ["--port", str(free_port()), "--s3-port", str(port), "--workers", str(workers)]
    with _started(Server("entrepot", port, sign), [*command, *more]) as server:
        server.put(server.connect(), "", 0)  # the bucket
        yield server


@contextlib.contextmanager
def _nginx(folder: Path, workers: int) -> Iterator[Server]:
    (folder / "files").mkdir(parents=True)
    server = Server("nginx", free_port(), lambda _, key: f"/{key}")
    config = folder / "nginx.conf"
    user = "user root;\n" if os.geteuid() == 0 else ""
    config.write_text(user + _NGINX.format(folder=folder, port=server.port, workers=workers))
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") or "nginx"
    with _started(server, [program, "-p", str(folder), "-c", str(config)]):
        yield server


@contextlib.contextmanager
def _rclone(folder: Path, _workers: int) -> Iterator[Server]:
    folder.mkdir()
    server = Server("rclone", free_port(), lambda _, key: f"/{key}")
    command = ["rclone", "serve", "webdav", str(folder), "--addr", f"127.0.0.1:{server.port}"]
    with _started(
        server, [*command, "--vfs-cache-mode", "writes", "--cache-dir", f"{folder}-cache"]
    ):
        yield server


def main() -> int:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.objects", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--data", type=Path, default=None, help="folder for the data")
    parser.add_argument("--only", default="", help="rows whose name contains this, or 'memory'")
    options = parser.parse_args()
    for program in ("nginx", "rclone"):
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None:
            sys.stderr.write(f"{program} is not installed\n")
            return 2
    with tempfile.TemporaryDirectory(dir=options.data) as made, contextlib.ExitStack() as stack:
        folder = Path(made)
        if options.only in ("", "memory"):
            with _ours(folder / "memory", options.workers) as server:
                measure_memory(server)
            shutil.rmtree(folder / "memory")
        servers = [
            stack.enter_context(start(folder / name, options.workers))
            for name, start in (("ours", _ours), ("nginx", _nginx), ("rclone", _rclone))
        ]
        for clients in (1, 8):
            for size_name, size in SIZES.items():
                for row in (f"GET {size_name} x{clients}", f"PUT {size_name} x{clients}"):
                    if options.only not in row:
                        continue
                    for number in range(options.rounds):
                        for each in servers if number % 2 == 0 else servers[::-1]:
                            measure(each, row, size, clients, options.seconds)
        _print(servers)
    return 0


def _print(servers: list[Server]) -> None:
    ours = servers[0]
    for row, rates in ours.rates.items():
        scale, unit = (64, "MiB/s") if "64 MiB" in row else (1, "/s")
        words = [f"{row:16} {statistics.median(rates) * scale:7.0f} {unit:5}"]
        words.append(f"{statistics.median(ours.processor[row]) * 1000:7.2f} ms")
        for peer in servers[1:]:
            pairs = zip(rates, peer.rates[row], strict=True)
            rate = statistics.median(mine / theirs for mine, theirs in pairs)
            pairs = zip(peer.processor[row], ours.processor[row], strict=True)
            used = statistics.median(theirs / mine for theirs, mine in pairs)
            words.append(f"  {peer.name} {rate:5.2f} (processor {used:5.2f})")
        print(*words)


if __name__ == "__main__":
    sys.exit(main())

"""Measure cold pulls through a cache: ``python -m benchmarks.cold_pulls [target …]``.

For each number of clients, all pull one image at once that the cache has never seen, over an
upstream of limited bandwidth: one layer after the other, each client in a thread.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.processes import MIB, cpu_seconds, memory_bytes, process_tree
from benchmarks.servers import ACCOUNT, ROOT, Server, kind_of
from benchmarks.slow_upstream import REPOSITORY
from benchmarks.wire import Connection, ExchangeFailedError

PREFIX: Final = "hub"


@dataclass
class Upstream:
    """The upstream, as it was started."""

    url: str
    images: list[list[str]]
    """The digests of the blobs of each image; its config is the first, its manifest the last."""

    def counts(self) -> dict[str, int]:
        """Return how often each blob was fetched."""
        with urllib.request.urlopen(f"{self.url}/counts", timeout=10) as answer:
            counted: dict[str, int] = json.loads(answer.read())
        return counted


@dataclass
class Pull:
    """What one client saw."""

    first_bytes: list[float] = field(default_factory=list)
    """Seconds from the request for a blob to its first byte."""
    done: float = 0.0
    failure: Exception | None = None


@contextmanager
def upstream(size: int, rate: float, count: int, layers: int = 6) -> Iterator[Upstream]:
    """Run an upstream with `count` images."""
    given = [str(each) for each in (size, rate, count, layers)]
    command = [sys.executable, "-m", "benchmarks.slow_upstream", *given]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            yield Upstream(f"http://127.0.0.1:{told['port']}", told["images"])
        finally:
            process.terminate()


def pull(connection: Connection, name: str, tag: int, blobs: Sequence[str], seen: Pull) -> None:
    """Pull an image as a client does."""
    begin = time.monotonic()
    try:
        _get(connection, f"/v2/{name}/manifests/{tag}")
        for digest in blobs:
            seen.first_bytes.append(_get(connection, f"/v2/{name}/blobs/{digest}"))
    except (OSError, ExchangeFailedError) as error:
        seen.failure = error
    seen.done = time.monotonic() - begin
    connection.close()


def _get(connection: Connection, target: str) -> float:
    """Get and drop a body; return the seconds to its first byte."""
    begin = time.monotonic()
    accept = "Accept: application/vnd.oci.image.manifest.v1+json"
    connection.send(connection.request("GET", target, accept))
    head = connection.head()
    if head.status != 200:
        raise ExchangeFailedError(f"{target}: {head.status}")
    if not connection._early:
        connection.socket.recv(1, socket.MSG_PEEK)
    first = time.monotonic() - begin
    connection.discard(head)
    return first


def measure(server: Server | Upstream, up: Upstream, tag: int, clients: int) -> str:
    """Pull an image by all clients at once; return the line of the report."""
    own = isinstance(server, Server)
    name = REPOSITORY
    if isinstance(server, Server) and server.bearers:
        name = f"{ACCOUNT}/{PREFIX}/{REPOSITORY}"
    make = server.connection if isinstance(server, Server) else lambda: Connection(server.url)
    blobs = up.images[tag][:-1]
    before = up.counts()
    pids = process_tree(server.pids[0]) if isinstance(server, Server) else []
    cpu, own_cpu = cpu_seconds(pids), time.process_time()
    pulls = [Pull() for _ in range(clients)]
    connections = [make() for _ in pulls]
    threads = [
        threading.Thread(target=pull, args=(each, name, tag, blobs, seen))
        for each, seen in zip(connections, pulls, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = up.counts()
    failures = [str(each.failure) for each in pulls if each.failure]
    fetches = [after.get(digest, 0) - before.get(digest, 0) for digest in blobs]
    layers = sorted(first for each in pulls for first in each.first_bytes[1:])
    peak = max((memory_bytes(pid).get("VmHWM", 0) for pid in pids), default=0) // MIB
    shown = (
        f"{clients:3} clients: done {median(p.done for p in pulls):6.2f} s, last"
        f" {max(p.done for p in pulls):6.2f} s; first byte of a layer p50"
        f" {median(layers or [0]) * 1000:6.0f} ms, worst {max(layers or [0]) * 1000:6.0f} ms"
    )
    if own:
        shown += (
            f"; fetches per blob {min(fetches)} to {max(fetches)};"
            f" cpu {cpu_seconds(pids) - cpu:5.2f} s, of the clients"
            f" {time.process_time() - own_cpu:5.2f} s; peak {peak} MiB"
        )
    return shown + (f"; {len(failures)} FAILED, as: {failures[0]}" if failures else "")


def prepare(server: Server, up: Upstream) -> None:
    """Make a rule for the upstream, where the server wants one."""
    if server.bearers is None:
        return
    body = json.dumps({"prefix": PREFIX, "upstream_url": up.url}).encode()
    headers = {
        "Authorization": f"Bearer {server.bearers.access_token}",
        "Content-Type": "application/json",
    }
    request = urllib.request.Request(f"{server.url}/v1/pull-through-cache-rules", body, headers)
    urllib.request.urlopen(request, timeout=10).close()


def main(argv: Sequence[str] | None = None) -> None:
    """Measure the targets one after the other, each with a fresh folder."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cold_pulls", description=__doc__)
    parser.add_argument("targets", nargs="*", default=["entrepot-sealed", "docker-registry"])
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 10, 50])
    parser.add_argument("--size", type=int, default=300, help="of the image, in MB")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--rate", type=float, default=50, help="MB a second of the upstream")
    parser.add_argument("--warm", action="store_true", help="pull each image a second time")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--data", type=Path, default=ROOT / "benchmarks" / "results" / "cold")
    options = parser.parse_args(argv)
    size, count = options.size * 1_000_000, len(options.clients) + 1
    with upstream(size, options.rate * 1e6, count, options.layers) as up:
        os.environ["REGISTRY_PROXY_REMOTEURL"] = up.url  # docker-registry's
        print(f"upstream alone: {measure(up, up, len(options.clients), 1)}", flush=True)
        for target in options.targets:
            kind, settings = kind_of(target)
            settings |= {"UPSTREAM_ALLOWED": up.url} if kind.settings or kind.signs_in else {}
            server = Server(kind, options.data / target, options.workers, settings)
            server.repositories = [f"{ACCOUNT}/{PREFIX}/{REPOSITORY}"]
            try:
                server.start()
                prepare(server, up)
                for tag, clients in enumerate(options.clients):
                    print(f"{target}: {measure(server, up, tag, clients)}", flush=True)
                    if options.warm:
                        print(f"  again: {measure(server, up, tag, clients)}", flush=True)
            finally:
                server.stop()
    shutil.rmtree(options.data, ignore_errors=True)


if __name__ == "__main__":
    main()

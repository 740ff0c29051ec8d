"""Measure warm pulls of cached content beside those of pushed content.

``python -m benchmarks.warm_pulls``: one registry has two images of the same size and form, one that
was pulled through its cache, and one that was pushed. Both are pulled in turn, A B, B A, …
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from benchmarks.cold_pulls import PREFIX, prepare, upstream
from benchmarks.exchanges import ACCEPT_MANIFEST, expect, open_upload, put_manifest
from benchmarks.processes import cpu_seconds, process_tree
from benchmarks.servers import ACCOUNT, ROOT, Server, kind_of
from benchmarks.slow_upstream import REPOSITORY, image
from benchmarks.wire import Connection, ExchangeFailedError

CACHED: Final = f"{ACCOUNT}/{PREFIX}/{REPOSITORY}"
PUSHED: Final = f"{ACCOUNT}/{REPOSITORY}"
SMALL_PULLS: Final = 2000
CLIENTS: Final = 4


class Place(NamedTuple):
    """An image in a repository."""

    name: str
    digests: list[str]
    """Its config first, its manifest last."""


def push(connection: Connection, name: str, content: dict[str, bytes]) -> None:
    """Push an image."""
    *blobs, (_, manifest) = content.items()
    for digest, blob in blobs:
        location = open_upload(connection, name)
        target = f"{location}{'&' if '?' in location else '?'}digest={digest}"
        connection.send(connection.request("PUT", target, f"Content-Length: {len(blob)}") + blob)
        head = connection.head()
        connection.discard(head)
        expect(head, 201, "PUT")
    put_manifest(connection, name, "0", manifest)


def pull(connection: Connection, targets: Sequence[str]) -> None:
    """Get and drop what `targets` name, in turn."""
    for target in targets:
        connection.send(connection.request("GET", target, ACCEPT_MANIFEST))
        head = connection.head()
        connection.discard(head)
        if head.status != 200:
            raise ExchangeFailedError(f"{target}: {head.status}")


def rows(place: Place) -> Iterator[tuple[str, int, list[str]]]:
    """Yield the rows: a name, how many clients, and what each gets."""
    base = f"/v2/{place.name}"
    config, *layers, manifest = place.digests
    yield "layers of the image", CLIENTS, [f"{base}/blobs/{layer}" for layer in layers] * 3
    yield "config", 1, [f"{base}/blobs/{config}"] * SMALL_PULLS
    yield "manifest by tag", 1, [f"{base}/manifests/0"] * SMALL_PULLS
    yield "manifest by digest", 1, [f"{base}/manifests/{manifest}"] * SMALL_PULLS


def cost(server: Server, clients: int, targets: Sequence[str]) -> tuple[float, float]:
    """Return the seconds, and those of processor time of the server, that pulls take."""
    connections = [server.connection() for _ in range(clients)]
    pids = process_tree(server.pids[0])
    with ThreadPoolExecutor(clients) as threads:
        begin, cpu = time.monotonic(), cpu_seconds(pids)
        list(threads.map(lambda each: pull(each, targets), connections))
        taken = time.monotonic() - begin, cpu_seconds(pids) - cpu
    for each in connections:
        each.close()
    return taken


@contextmanager
def both(options: argparse.Namespace) -> Iterator[tuple[Server, Place, Place]]:
    """Run a registry with both images."""
    with upstream(options.size * 1_000_000, 1e9, 1) as up:
        kind, settings = kind_of(options.target)
        settings["UPSTREAM_ALLOWED"] = up.url
        server = Server(kind, options.data, options.workers, settings)
        server.repositories = [CACHED, PUSHED]
        try:
            server.start()
            prepare(server, up)
            cached = Place(CACHED, up.images[0])
            content = image(options.size * 1_000_000, 1)
            pushed = Place(PUSHED, list(content))
            connection = server.connection()
            push(connection, PUSHED, content)
            for place in (cached, pushed):
                for _, _, targets in rows(place):
                    pull(connection, targets[:20])
            connection.close()
            yield server, cached, pushed
        finally:
            server.stop()
            shutil.rmtree(options.data, ignore_errors=True)


def main(argv: Sequence[str] | None = None) -> None:
    """Print a line for each row."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.warm_pulls", description=__doc__)
    parser.add_argument("target", nargs="?", default="entrepot-sealed")
    parser.add_argument("--size", type=int, default=60, help="of each image, in MB")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--data", type=Path, default=ROOT / "benchmarks" / "results" / "warm")
    options = parser.parse_args(argv)
    with both(options) as (server, *places):
        for number, (row, clients, _) in enumerate(rows(places[0])):
            taken: list[list[tuple[float, float]]] = [[], []]
            for turn in range(options.rounds):
                order: Callable[[list[int]], Iterator[int]] = reversed if turn % 2 else iter
                for which in order([0, 1]):
                    targets = list(rows(places[which]))[number][2]
                    taken[which].append(cost(server, clients, targets))
            ratios = [
                [cached[kind] / pushed[kind] for cached, pushed in zip(*taken, strict=True)]
                for kind in (0, 1)
            ]
            spent = [median(each[1] for each in side) for side in taken]
            print(
                f"{row}: processor time {spent[0]:.3f} s cached, {spent[1]:.3f} s pushed, ratio"
                f" {median(ratios[1]):.3f}; seconds, ratio {median(ratios[0]):.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()

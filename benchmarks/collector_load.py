"""Clients that push and pull, and their latencies in windows of time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from benchmarks.bodies import BodyMaker
from benchmarks.exchanges import MANIFEST_TYPE, image_manifest
from benchmarks.load import percentile
from benchmarks.scale_data import HANDLE, REPOSITORY
from benchmarks.scale_site import Site
from benchmarks.wire import Connection, ExchangeFailedError

BLOB_BYTES: Final = 4096
_NAME: Final = f"/v2/{HANDLE}/{REPOSITORY}"


class Window(NamedTuple):
    """What the clients did in a window of time."""

    seconds: float
    pushes: list[float]
    """Seconds of each push of an image: a new blob in one POST, and its manifest."""
    pulls: list[float]
    """Seconds of each pull: a manifest by its tag, and its blob."""

    def rate(self, kind: str) -> float:
        """Return the rate of ``pushes`` or ``pulls`` per second."""
        return len(getattr(self, kind)) / self.seconds

    def slowest(self, kind: str) -> float:
        """Return the 99th percentile of ``pushes`` or ``pulls``, in milliseconds."""
        return percentile(sorted(getattr(self, kind)), 99) * 1e3


class Clients:
    """Threads that push or pull, each over a connection of its own."""

    def __init__(self, site: Site, maker: BodyMaker) -> None:
        self._site = site
        self._maker = maker
        self._authorization = site.bearer()
        self._stopping = False
        self._pushes: list[tuple[float, float]] = []
        self._pulls: list[tuple[float, float]] = []
        self._failures: list[BaseException] = []
        self._config = self._push_blob(connection := Connection(site.url))
        self._push_image(connection, "pulled", self._config)
        connection.close()

    @contextmanager
    def at_work(self, pushers: int, pullers: int) -> Iterator[None]:
        """Run this many clients during the block.

        Raises:
            ExchangeFailedError: one of them got a wrong answer.

        """
        self.renew()
        self._stopping = False
        work = [(self._push, self._pushes)] * pushers + [(self._pull, self._pulls)] * pullers
        threads = [
            threading.Thread(target=self._repeat, args=(*each, number), daemon=True)
            for number, each in enumerate(work)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping = True
            for thread in threads:
                thread.join()
        if self._failures:
            raise ExchangeFailedError(f"a client failed: {self._failures[0]}")

    def renew(self) -> None:
        """Go on with a new bearer if the present one is about to expire."""
        self._authorization = self._site.bearer()

    def watch(self, wait: Callable[[], object]) -> Window:
        """Call `wait`; return what the clients did meanwhile."""
        begun = time.perf_counter()
        wait()
        ended = time.perf_counter()
        done = [
            [taken for at, taken in kind if begun <= at < ended]
            for kind in (self._pushes, self._pulls)
        ]
        return Window(ended - begun, *done)

    def _repeat(
        self, work: Callable[[Connection, str], None], done: list[tuple[float, float]], number: int
    ) -> None:
        try:
            connection = Connection(self._site.url)
            while not self._stopping:
                begun = time.perf_counter()
                work(connection, f"client-{number}")
                ended = time.perf_counter()
                done.append((ended, ended - begun))
            connection.close()
        except (OSError, ExchangeFailedError) as error:
            self._failures.append(error)

    def _push(self, connection: Connection, tag: str) -> None:
        self._push_image(connection, tag, self._push_blob(connection))

    def _pull(self, connection: Connection, _tag: str) -> None:
        self._get(connection, "/manifests/pulled", f"Accept: {MANIFEST_TYPE}")
        self._get(connection, f"/blobs/{self._config}")

    def _push_blob(self, connection: Connection) -> str:
        body = self._maker.make(BLOB_BYTES)
        headers = (self._authorization, f"Content-Length: {BLOB_BYTES}")
        target = f"{_NAME}/blobs/uploads/?digest={body.digest}"
        self._maker.send_plain(connection, connection.request("POST", target, *headers), body)
        _created(connection, "POST of a blob")
        return body.digest

    def _push_image(self, connection: Connection, tag: str, layer: str) -> None:
        blobs = (self._config, BLOB_BYTES), (layer, BLOB_BYTES)
        manifest = image_manifest(*blobs, tag)
        request = connection.request(
            "PUT",
            f"{_NAME}/manifests/{tag}",
            self._authorization,
            f"Content-Length: {len(manifest)}",
            f"Content-Type: {MANIFEST_TYPE}",
        )
        connection.send(request + manifest)
        _created(connection, "PUT of a manifest")

    def _get(self, connection: Connection, path: str, *headers: str) -> None:
        connection.send(connection.request("GET", _NAME + path, self._authorization, *headers))
        head = connection.head()
        connection.discard(head)
        if head.status != 200:
            raise ExchangeFailedError(f"GET {path}: {head.status}")


def _created(connection: Connection, what: str) -> None:
    head = connection.head()
    body = connection.body(head)
    if head.status != 201:
        raise ExchangeFailedError(f"{what}: {head.status} {body[:300]!r}")

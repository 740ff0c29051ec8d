"""Clients that do exchanges of all kinds, as many a second as they are told to."""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import httpx

from benchmarks import exchanges
from benchmarks.memory_pages import Reader
from benchmarks.signed_in import Bearers
from benchmarks.target import KIB, Target
from benchmarks.wire import Connection, ExchangeFailedError

MIB: Final = 1 << 20
CONNECTION_EXCHANGES: Final = 200
"""Exchanges on one connection; then the client signs in again."""
KEPT_TAGS: Final = 200
"""Tags that pushes take in turn, so that manifests lose theirs, and lists stay as long."""
_COLLECTIONS: Final = "/v1/garbage-collection/runs"

Act = Callable[["Client", random.Random], object]


class Client:
    """One client's connection, and where it calls ``/v1`` if it has signed in."""

    def __init__(self, target: Target) -> None:
        self._access: Connection | None = None
        self.repository_id = ""
        self._bearers: Bearers | None = None
        server = target.server
        if server is None or server.bearers is None:
            self.connection = target.connection()
            return
        bearers = self._bearers = server.bearers.again()
        self.connection = Connection(target.url, bearers.header())
        self._access = Connection(target.url, f"Authorization: Bearer {bearers.access_token}")
        self.repository_id = self.call("GET", "/v1/repositories")["repositories"][0]["id"]

    def call(self, method: str, path: str, *, absent: bool = False) -> Any:  # noqa: ANN401 - JSON
        """Send a request to ``/v1``; return the answer, or None if there is none or 404 may be."""
        connection = self._access
        if connection is None:
            return None
        connection.send(connection.request(method, path, "Content-Length: 0"))
        head = connection.head()
        body = connection.body(head) if head.status != 204 else b""
        if head.status >= 300 and not (absent and head.status == 404):
            raise ExchangeFailedError(f"{method} {path}: {head.status} {body[:200]!r}")
        return json.loads(body) if body else None

    def sign_in(self) -> None:
        """Sign in once more, for new tokens that nobody uses."""
        if self._bearers is not None:
            self._bearers.again().header()

    def close(self) -> None:
        """Close the connections."""
        self.connection.close()
        if self._access is not None:
            self._access.close()


class Clients:
    """Threads that do exchanges of all kinds until they are told to stop."""

    def __init__(
        self, target: Target, count: int, rate: float, only: Sequence[str] | None = None
    ) -> None:
        """Do at most `rate` exchanges a second in all; 0: as many as there can be.

        `only` are the kinds that are done: ``pulls``, ``pushes``, ``calls``, ``tokens``, ``pages``.
        """
        self.exchanges = 0
        self.failures: list[Exception] = []
        self._target = target
        self._pause = count / rate if rate else 0.0
        self._stopping = threading.Event()
        self._make_manifest = target.manifest_maker(target.repository)
        self._small, self._large = target.blobs(4 * KIB), target.blobs(MIB)
        self._manifests = target.manifests()
        self._only = only
        server = target.server
        signs_in = server is not None and server.bearers is not None
        self._reader = Reader(server) if server is not None and signs_in else None
        self._threads = [
            threading.Thread(target=self._run, args=(number,)) for number in range(count)
        ]

    def start(self) -> None:
        """Start all clients."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let all clients end."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        if self._reader is not None:
            self._reader.close()

    def wait(self, seconds: float) -> None:
        """Wait so long, or until a client has failed."""
        self._stopping.wait(seconds)

    def _run(self, seed: int) -> None:
        chosen = random.Random(seed)
        acts, weights = zip(*self._acts(), strict=True)
        due = time.monotonic()
        try:
            while not self._stopping.is_set():
                client = Client(self._target)
                for _ in range(CONNECTION_EXCHANGES):
                    due = max(due + self._pause, time.monotonic() - 1)
                    if self._stopping.wait(max(0.0, due - time.monotonic())):
                        break
                    (act,) = chosen.choices(acts, weights)
                    act(client, chosen)
                    self.exchanges += 1
                client.close()
        except (OSError, ExchangeFailedError, httpx.HTTPError) as error:
            self.failures.append(error)
            self._stopping.set()

    def _acts(self) -> Iterator[tuple[Act, int]]:
        """Yield the exchanges, each with how often it is done."""
        kinds = {"pulls": self._pulls, "pushes": self._pushes}
        if self._reader is not None:
            kinds |= {"calls": _calls, "tokens": _tokens, "pages": self._pages}
        for name, acts in kinds.items():
            if self._only is None or name in self._only:
                yield from acts()

    def _pages(self) -> Iterator[tuple[Act, int]]:
        reader = self._reader
        assert reader is not None
        yield lambda _, chosen: reader.read(chosen), 40

    def _pulls(self) -> Iterator[tuple[Act, int]]:
        repository, accepted = self._target.repository, exchanges.ACCEPT_MANIFEST

        def get(path: str) -> Act:
            return lambda client, _: exchanges.read(client.connection, path)

        def pull_manifest(client: Client, chosen: random.Random) -> None:
            stored = chosen.choice(self._manifests)
            reference = chosen.choice((stored.tag, stored.digest))
            path = f"/v2/{repository}/manifests/{reference}"
            exchanges.read(client.connection, path, accepted)

        def pull(digests: Sequence[str]) -> Act:
            def pull_one(client: Client, chosen: random.Random) -> None:
                digest = chosen.choice(digests)
                exchanges.verify(client.connection, f"/v2/{repository}/blobs/{digest}", digest)

            return pull_one

        def pull_part(client: Client, chosen: random.Random) -> None:
            first = chosen.randrange(MIB - 1000)
            path = f"/v2/{repository}/blobs/{chosen.choice(self._large)}"
            connection = client.connection
            connection.send(connection.request("GET", path, f"Range: bytes={first}-{first + 999}"))
            head = connection.head()
            connection.discard(head)
            exchanges.expect(head, 206, f"a part of {path}")

        yield pull_manifest, 400
        yield pull(self._small), 100
        yield pull(self._large), 30
        yield pull_part, 20
        yield get(f"/v2/{repository}/tags/list?n=100"), 20
        yield get(f"/v2/{repository}/referrers/{self._manifests[0].digest}"), 10
        yield get("/readyz"), 5

    def _pushes(self) -> Iterator[tuple[Act, int]]:
        repository, maker = self._target.repository, self._target.maker

        def push(size: int) -> Act:
            return lambda client, _: exchanges.push_streamed(
                client.connection, repository, maker, size
            )

        def push_manifest(client: Client, chosen: random.Random) -> None:
            tag = f"m{chosen.randrange(KEPT_TAGS)}"
            exchanges.put_manifest(client.connection, repository, tag, self._make_manifest())

        yield push(4 * KIB), 40
        yield push(MIB), 5
        yield push(32 * MIB), 1
        yield push_manifest, 40


def _tokens() -> Iterator[tuple[Act, int]]:
    """Yield the exchanges that sign in: an access token, a login password and a bearer."""
    yield lambda client, _: client.sign_in(), 10


def _calls() -> Iterator[tuple[Act, int]]:
    """Yield the exchanges on ``/v1``."""
    numbers = itertools.count()

    def get(path: str) -> Act:
        return lambda client, _: client.call("GET", path.format(client.repository_id))

    def delete_tag(client: Client, chosen: random.Random) -> None:
        path = f"/v1/repositories/{client.repository_id}/tags/m{chosen.randrange(KEPT_TAGS)}"
        client.call("DELETE", path, absent=True)

    def collect(client: Client, _: random.Random) -> None:
        if next(numbers) % 10 == 0:
            client.call("POST", _COLLECTIONS)

    yield get("/v1/repositories?limit=20"), 10
    yield get("/v1/repositories/{}"), 10
    yield get("/v1/repositories/{}/images?limit=20"), 10
    yield get("/v1/repositories/{}/tags?limit=50"), 10
    yield get("/v1/storage-usage"), 2
    yield get("/v1/audit-events?limit=20"), 2
    yield delete_tag, 20
    yield collect, 2

"""Measure how many messages a second pass through a queue: ``python -m benchmarks.queues``.

Each message is sent, leased and acknowledged over HTTP, by clients that do one after the other with
batches, against ``entrepot serve`` on an empty SQLite database in a fresh folder. At the end the
queue is drained, and must be empty.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import urlsplit

from tests.entrepot import Home, installed

BODY_BYTES: Final = 500
MOST: Final = 100
"""Messages of one request at most."""


def _messages(count: int) -> dict[str, Any]:
    return {"messages": [{"body": "x" * BODY_BYTES}] * count}


class Client:
    """One connection, signed in."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._http = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def call(self, method: str, path: str, document: object = None) -> Any:  # noqa: ANN401 - JSON
        """Send a request; return the answer."""
        body = None if document is None else json.dumps(document)
        self._http.request(method, path, body, self._headers)
        response = self._http.getresponse()
        content = response.read()
        if response.status >= 300:
            raise RuntimeError(f"{method} {path}: {response.status} {content[:300]!r}")
        return json.loads(content) if content else None


class Pass:
    """What a number of clients do with one queue in some seconds."""

    def __init__(
        self, clients: Sequence[Client], queue: str, batch: int, seconds: float, waiting: int
    ) -> None:
        """Let `waiting` messages be in the queue meanwhile."""
        self._clients = clients
        self._messages = f"/v1/queues/{queue}/messages"
        self._queue = f"/v1/queues/{queue}"
        self._batch = batch
        self._fill(waiting)
        self._end = time.monotonic() + seconds
        self._counts = [0] * len(clients)
        self._failed: list[BaseException] = []

    def rate(self) -> float:
        """Return the messages a second that were sent, leased and acknowledged."""
        began = time.monotonic()
        threads = [
            threading.Thread(target=self._work, args=(number,))
            for number in range(len(self._clients))
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        if self._failed:
            raise self._failed[0]
        seconds = time.monotonic() - began
        self._drain()
        return sum(self._counts) / seconds

    def _fill(self, waiting: int) -> None:
        for start in range(0, waiting, MOST):
            count = min(MOST, waiting - start)
            self._clients[0].call("POST", self._messages, _messages(count))

    def _work(self, number: int) -> None:
        client = self._clients[number]
        sent = _messages(self._batch)
        try:
            while time.monotonic() < self._end:
                client.call("POST", self._messages, sent)
                self._counts[number] += self._take(client, self._batch)
        except BaseException as error:  # noqa: BLE001 - told by the main thread
            self._failed.append(error)

    def _take(self, client: Client, batch: int) -> int:
        """Lease and acknowledge a batch; return how many messages that were."""
        wanted = {"max_messages": batch}
        leased = client.call("POST", f"{self._messages}/lease", wanted)["messages"]
        if not leased:
            return 0
        ids = {"lease_ids": [each["lease_id"] for each in leased]}
        answer = client.call("POST", f"{self._messages}/acknowledge", ids)
        assert not answer["failures"], answer
        return len(leased)

    def _drain(self) -> None:
        while self._take(self._clients[0], MOST):
            pass
        depth = self._clients[0].call("GET", self._queue)["queue"]["depth"]
        assert depth["visible"] == depth["leased"] == 0, depth


@contextmanager
def _served(clients: int) -> Iterator[list[Client]]:
    with (
        TemporaryDirectory(prefix="queues-", dir="benchmarks/results") as folder,
        installed(Path(folder) / "data") as install,
    ):
        home = Home(Path(folder) / "home")
        assert install.sign_in_by_key(home).returncode == 0
        token = home.stored()[install.url]["token"]["access_token"]
        yield [Client(install.url, token) for _ in range(clients)]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print a row for each size of batch."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.queues", description=__doc__)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 10, 100])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--waiting", type=int, default=0, help="messages left in the queue (0)")
    options = parser.parse_args(argv)
    Path("benchmarks/results").mkdir(exist_ok=True)
    with _served(options.clients) as clients:
        queue = clients[0].call("POST", "/v1/queues", {"name": "jobs"})["queue"]["id"]
        told = f"{options.clients} clients, {options.waiting:,} messages waiting"
        sys.stdout.write(f"messages of {BODY_BYTES} bytes, {told}\n")
        for batch in options.batches:
            rate = Pass(clients, queue, batch, options.seconds, options.waiting).rate()
            sys.stdout.write(f"batches of {batch:3}: {rate:8,.0f} messages a second\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())

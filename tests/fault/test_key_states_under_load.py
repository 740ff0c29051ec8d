"""A key goes through all its states while two workers serve pushes and pulls under it.

From the answer to a change on, every request is decided by the new state, in both workers. Another
repository, which has the same bytes under another key, notices nothing.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import httpx
import pytest

from registry.oci.digest import digest_of
from tests.live_signed_in import SignedIn, serving

pytestmark = pytest.mark.timeout(180)

SHARED: Final = os.urandom(3_000_000)
SMALL: Final = os.urandom(3_000)
REPOSITORIES: Final = ("red", "blue")
WINDOW_SECONDS: Final = 0.2
"""Time that the clients have in each state, at least."""
KINDS: Final = frozenset({"pull", "push", "begin"})
"""Requests that each state must meet."""
SHUT: Final = {"reason": "kms_key_disabled"}


class Change(NamedTuple):
    """A change of the key of ``red``, and whether its blobs can be used after it."""

    method: str
    path: str
    is_usable: bool


CHANGES: Final = (
    Change("POST", "/rotate", is_usable=True),
    Change("POST", "/disable", is_usable=False),
    Change("POST", "/enable", is_usable=True),
    Change("DELETE", "?pending_window_days=7", is_usable=False),
    Change("POST", "/cancel-deletion", is_usable=False),
    Change("POST", "/enable", is_usable=True),
    Change("POST", "/rotate", is_usable=True),
)


class Done(NamedTuple):
    """A request that a client made."""

    began: float
    ended: float
    repository: str
    what: str
    status: int


class Window(NamedTuple):
    """A time in which the key had one state."""

    since: float
    until: float
    is_usable: bool


@dataclass
class Load:
    """Clients that push and pull until they are stopped."""

    served: SignedIn
    done: list[Done] = field(default_factory=list)
    pushed: list[tuple[str, bytes]] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def client(self) -> httpx.Client:
        """Return a client with a bearer for both repositories."""
        scopes = [f"repository:acme/{name}:pull,push" for name in REPOSITORIES]
        url, login = self.served.registry.url, ("token", self.served.acme.password)
        answer = httpx.get(
            f"{url}/v2/token", params=[("scope", scope) for scope in scopes], auth=login, timeout=30
        )
        headers = {"Authorization": f"Bearer {answer.json()['token']}"}
        return httpx.Client(base_url=url, headers=headers, timeout=30)

    def run(self, seed: int) -> None:
        """Push and pull in turns."""
        with self.client() as client:
            for turn in itertools.count(seed):
                if self.stopped.is_set():
                    return
                repository = REPOSITORIES[turn % 2]
                (self.pull, self.push_small, self.pull_small, self.push_parts)[turn // 2 % 4](
                    client, repository
                )

    def has_met(self, since: float) -> bool:
        """Return True if ``red`` has had a request of each kind since a time."""
        met = (each for each in tuple(self.done) if each.began >= since)
        return {each.what for each in met if each.repository == "red"} >= KINDS

    def note(self, began: float, repository: str, what: str, answer: httpx.Response) -> bool:
        """Note an answer; return True if it is a success. A refusal must tell the reason."""
        self.done.append(Done(began, time.monotonic(), repository, what, answer.status_code))
        if answer.is_success:
            return True
        (error,) = answer.json()["errors"]
        assert (answer.status_code, error["code"], error["detail"]) == (403, "DENIED", SHUT)
        return False

    def pull(self, client: httpx.Client, repository: str, data: bytes = SHARED) -> None:
        """Pull a blob that both repositories have."""
        began = time.monotonic()
        answer = client.get(f"/v2/acme/{repository}/blobs/{digest_of(data)}")
        if self.note(began, repository, "pull", answer):
            assert answer.content == data

    def pull_small(self, client: httpx.Client, repository: str) -> None:
        """Pull an inline blob."""
        self.pull(client, repository, SMALL)

    def push_small(self, client: httpx.Client, repository: str) -> None:
        """Push new bytes in one request."""
        data, began = os.urandom(2_000), time.monotonic()
        path = f"/v2/acme/{repository}/blobs/uploads/?digest={digest_of(data)}"
        if self.note(began, repository, "push", client.post(path, content=data)):
            self.pushed.append((repository, data))

    def push_parts(self, client: httpx.Client, repository: str) -> None:
        """Push bytes that the account has in three requests, in any of which the key may go."""
        began = time.monotonic()
        answer = client.post(f"/v2/acme/{repository}/blobs/uploads/")
        if not self.note(began, repository, "begin", answer):
            return
        location, began = answer.headers["location"], time.monotonic()
        answer = client.patch(location, content=SHARED)
        if not self.note(began, repository, "send", answer):
            return
        location, began = answer.headers["location"], time.monotonic()
        answer = client.put(f"{location}?digest={digest_of(SHARED)}")
        self.note(began, repository, "finish", answer)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[SignedIn]:
    """Return a real ``entrepot serve`` of two workers."""
    with serving(tmp_path / "data", "--workers", "2") as signed_in:
        yield signed_in


def bound_key(served: SignedIn) -> str:
    """Make both repositories, the first one bound to a key of its own; return the key's id."""
    key = served.call(served.acme, "POST", "/v1/keys", {"name": "swing"})["key"]
    served.call(served.acme, "POST", "/v1/repositories", {"name": "red", "kms_key": "swing"})
    served.call(served.acme, "POST", "/v1/repositories", {"name": "blue"})
    found: str = key["id"]
    return found


def check(done: Sequence[Done], windows: Sequence[Window]) -> None:
    """Check that ``red`` was answered by the state of its key, and ``blue`` always."""
    assert all(each.status < 300 for each in done if each.repository == "blue")
    red = [each for each in done if each.repository == "red"]
    seen: Counter[tuple[str, bool]] = Counter()
    for (since, until, is_usable), request in itertools.product(windows, red):
        if since <= request.began and request.ended <= until:
            assert (request.status < 300) is is_usable, request
            seen[request.what, is_usable] += 1
    for what in KINDS:
        assert seen[what, True] > 0
        assert seen[what, False] > 0


def test_every_state_counts_from_its_answer_on(served: SignedIn, tmp_path: Path) -> None:
    key = bound_key(served)
    load = Load(served)
    with load.client() as client:
        for repository in REPOSITORIES:
            for data in (SHARED, SMALL):
                path = f"/v2/acme/{repository}/blobs/uploads/?digest={digest_of(data)}"
                assert client.post(path, content=data).status_code == 201
    windows: list[Window] = []
    with ThreadPoolExecutor(4) as threads:
        clients = [threads.submit(load.run, seed) for seed in range(4)]
        try:
            for change in CHANGES:
                served.call(served.acme, change.method, f"/v1/keys/{key}{change.path}")
                since = time.monotonic()
                load.stopped.wait(WINDOW_SECONDS)
                while not load.has_met(since) and not any(each.done() for each in clients):
                    load.stopped.wait(0.01)
                windows.append(Window(since, time.monotonic(), change.is_usable))
        finally:
            load.stopped.set()
        for each in clients:
            each.result()

    check(load.done, windows)
    with load.client() as client:
        for repository, data in load.pushed:
            answer = client.get(f"/v2/acme/{repository}/blobs/{digest_of(data)}")
            assert (answer.status_code, answer.content) == (200, data)

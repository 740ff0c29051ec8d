"""A registry to be measured: set it up, fill it, serve it, sign in, and send requests."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from statistics import quantiles
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from benchmarks.exchanges import read
from benchmarks.processes import cpu_seconds, process_tree
from benchmarks.scale_data import HANDLE, REPOSITORY, Contents
from benchmarks.scale_stores import Store
from benchmarks.servers import ROOT, STOP_SECONDS, UnavailableError, free_port
from benchmarks.wire import Connection, ExchangeFailedError

READY_SECONDS: Final = 60
SETTLED_SECONDS: Final = 300
"""The longest time that a registry may work by itself after its start, such as index names."""
_IDLE: Final = 0.03
"""Share of a processor that a registry without requests takes at most."""
_PAUSE_SECONDS: Final = 0.02
_BEARER_SECONDS: Final = 200
"""Age at which a bearer token of ``/v2`` is replaced; it is valid for five minutes."""


class Call(NamedTuple):
    """A request, and the expected status."""

    method: str
    target: str
    body: bytes | None = None
    status: int = 200
    content_type: str = "application/json"
    before: Call | None = None
    """A request to send first, which is not measured."""


class Costs(NamedTuple):
    """The costs of some calls."""

    latencies: Sequence[float]
    """Seconds of each call."""
    cpu: float
    """Seconds of CPU time of the registry and the database server, per call."""

    @property
    def latency(self) -> float:
        """Return the lower quartile in seconds; other load on the machine raises the median."""
        return quantiles(self.latencies, n=4, method="inclusive")[0]


class Site:
    """A registry with a database of its own."""

    def __init__(
        self,
        name: str,
        data: Path,
        store: Store,
        database_pid: int | None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.store = store
        self.data = data
        self.database_pid = database_pid
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "ENTREPOT_DATABASE_URL": store.url,
            **(settings or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._secrets: tuple[str, ...] = ()
        self._signed: dict[str, str] = {}
        self._bearer_until = 0.0
        self._pids: list[int] = []
        self.contents: Contents

    def set_up(self, images: int, tags: int, repositories: int) -> None:
        """Run ``entrepot init`` and fill the database."""
        shown = subprocess.run(
            self._command("init", "--account", HANDLE, "--admin-email", "a@example.org"),
            env=self._environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        labels = ("access key id", "secret access key")
        self._secrets = tuple(re.findall(rf"{label} +(\S+)", shown)[0] for label in labels)
        now = time.time_ns() // 1000
        account_id = self.store.account_id()
        self.contents = Contents(account_id, images, tags, repositories, now)
        self.store.fill(self.contents)

    def start(self) -> None:
        """Start serving, and sign in."""
        log = self.data / "log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                self._command("serve", "--port", str(self._port)),
                env=self._environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                self.connection = Connection(self.url)
                read(self.connection, "/readyz")
            except (OSError, ExchangeFailedError):
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise UnavailableError(log.read_text(errors="replace")[-2000:]) from None
                time.sleep(0.05)
            else:
                break
        form = urlencode({"grant_type": "client_credentials"}).encode()
        basic = _basic(*self._secrets)
        answer = self._exchange(
            Call("POST", "/v1/oauth/token", form, content_type="application/x-www-form-urlencoded"),
            basic,
        )
        self._signed["/v1"] = f"Bearer {json.loads(answer)['access_token']}"

    def settle(self) -> None:
        """Wait until the registry has indexed all names for the search, and has nothing to do.

        That work counts in the processor time, and each of its commits costs the next read. It
        begins up to a minute after the registry, which has nothing to do until then.

        Raises:
            UnavailableError: it is still busy after five minutes.

        """
        deadline = time.monotonic() + SETTLED_SECONDS
        while self.store.unindexed():
            time.sleep(1)
            self._check_patience(deadline)
        quiet = 0
        while quiet < 3:  # it may rest between two portions
            begun, cpu = time.monotonic(), cpu_seconds(self.pids)
            time.sleep(1)
            share = (cpu_seconds(self.pids) - cpu) / (time.monotonic() - begun)
            quiet = quiet + 1 if share < _IDLE else 0
            self._check_patience(deadline)

    def _check_patience(self, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise UnavailableError(f"{self.name} is still busy by itself")

    def stop(self) -> None:
        """Stop serving."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    @property
    def pids(self) -> list[int]:
        """Return the ids of its processes, and of those of the database server."""
        assert self._process is not None
        database = [] if self.database_pid is None else process_tree(self.database_pid)
        return process_tree(self._process.pid) + database

    def refresh(self) -> None:
        """Fetch a new bearer token of ``/v2`` if the last one is about to expire."""
        if time.monotonic() < self._bearer_until:
            return
        login = self.ask_json(Call("POST", "/v1/authorization-token", b""))
        scopes = [f"repository:{HANDLE}/{REPOSITORY}:pull,push,delete", "registry:catalog:*"]
        query = "&".join(f"scope={quote(scope)}" for scope in scopes)
        answer = self._exchange(
            Call("GET", f"/v2/token?service={quote(self.url[7:])}&{query}"),
            _basic(login["username"], login["password"]),
        )
        self._signed["/v2"] = f"Bearer {json.loads(answer)['token']}"
        self._bearer_until = time.monotonic() + _BEARER_SECONDS

    def bearer(self) -> str:
        """Return the header with the bearer token of ``/v2``."""
        self.refresh()
        return f"Authorization: {self._signed['/v2']}"

    def ask(self, call: Call) -> bytes:
        """Send a request; return the body of the answer.

        Raises:
            ExchangeFailedError: the answer has another status than expected.

        """
        return self._exchange(call, self._signed[call.target[:3]])

    def ask_json(self, call: Call) -> Any:  # noqa: ANN401
        """Send a request; return the JSON of the answer."""
        return json.loads(self.ask(call))

    def measure(self, calls: Sequence[Call]) -> Costs:
        """Make calls one after the other; return their costs."""
        pids = self.pids
        latencies = []
        cpu = -cpu_seconds(pids)
        for call in calls:
            if call.before is not None:
                cpu += cpu_seconds(pids)
                self.ask(call.before)
                cpu -= cpu_seconds(pids)
            begun = time.perf_counter()
            self.ask(call)
            latencies.append(time.perf_counter() - begun)
        return Costs(latencies, (cpu + cpu_seconds(pids)) / len(calls))

    def measure_beside(self, slow: Call, quick: Call) -> tuple[float, float, float]:
        """Make a `slow` call, and `quick` ones meanwhile.

        Return the seconds of the slow call, of the slowest quick one, and of CPU time.
        """
        worst = 0.0
        pids = self.pids
        cpu = -cpu_seconds(pids)
        with closing(Connection(self.url)) as other, ThreadPoolExecutor(1) as pool:
            begun = time.perf_counter()
            took: list[float] = []
            ended = pool.submit(self._exchange, slow, self._signed[slow.target[:3]], other)
            ended.add_done_callback(lambda _: took.append(time.perf_counter() - begun))
            try:
                while not ended.done():
                    worst = max(worst, *self.measure([quick]).latencies)
                    time.sleep(_PAUSE_SECONDS)
            except BaseException:
                other.abort()  # otherwise the pool would wait for the answer
                raise
            ended.result()
        return took[0], worst, cpu + cpu_seconds(pids)

    def _exchange(
        self, call: Call, authorization: str, connection: Connection | None = None
    ) -> bytes:
        connection = connection or self.connection
        headers = [f"Authorization: {authorization}"]
        if call.body is not None:
            headers.append(f"Content-Length: {len(call.body)}")
            headers.append(f"Content-Type: {call.content_type}")
        request = connection.request(call.method, call.target, *headers)
        connection.send(request + (call.body or b""))
        head = connection.head()
        body = b"" if call.method == "HEAD" else connection.body(head)
        if head.status != call.status:
            raise ExchangeFailedError(
                f"{self.name}: {call.method} {call.target}: {head.status} {body[:300]!r}"
            )
        return body

    def _command(self, command: str, *options: str) -> list[str]:
        return [sys.executable, "-m", "registry", command, "--data", str(self.data), *options]


def _basic(name: str, secret: str) -> str:
    return f"Basic {b64encode(f'{name}:{secret}'.encode()).decode()}"

"""A registry under test: set up, filled, served and signed in to, and what is asked of it."""

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
_PAUSE_SECONDS: Final = 0.02
_BEARER_SECONDS: Final = 200
"""After so long a bearer of ``/v2``, which lives five minutes, is fetched anew."""


class Call(NamedTuple):
    """A request, and the only status that is right."""

    method: str
    target: str
    body: bytes | None = None
    status: int = 200
    content_type: str = "application/json"
    before: Call | None = None
    """What is asked first, unmeasured."""


class Costs(NamedTuple):
    """What some calls took."""

    latencies: Sequence[float]
    """Seconds of each."""
    cpu: float
    """Seconds of the registry's processes and the database's, for one call."""

    @property
    def latency(self) -> float:
        """Return the lower quartile, in seconds: what others do with the machine lifts the rest."""
        return quantiles(self.latencies, n=4, method="inclusive")[0]


class Site:
    """A registry of some size, over a database of its own."""

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
        """Make the install and fill it."""
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
        """Serve it, and sign in."""
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
        """Return the processes that work for it, the database's too."""
        assert self._process is not None
        database = [] if self.database_pid is None else process_tree(self.database_pid)
        return process_tree(self._process.pid) + database

    def refresh(self) -> None:
        """Fetch a new bearer of ``/v2`` when the last one is about to end."""
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
        """Return the header that signs requests to ``/v2``, good for some minutes."""
        self.refresh()
        return f"Authorization: {self._signed['/v2']}"

    def ask(self, call: Call) -> bytes:
        """Return the body of the answer.

        Raises:
            ExchangeFailedError: it has another status than the right one.

        """
        return self._exchange(call, self._signed[call.target[:3]])

    def ask_json(self, call: Call) -> Any:  # noqa: ANN401
        """Return the document of the answer."""
        return json.loads(self.ask(call))

    def measure(self, calls: Sequence[Call]) -> Costs:
        """Make calls one after the other, and return what they took."""
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
        """Return the seconds of a slow call, of the slowest `quick` one meanwhile, and of CPU."""
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
                other.abort()  # else the pool would wait for the answer
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

"""Measure the server's CPU time of a manifest GET with and without a bearer token.

    python -m benchmarks.bearer_cost

Run ``entrepot dev`` and ``entrepot serve`` side by side, each with one worker and one manifest, and
send requests to them in turn. Exit with 1 if the token adds more than `LIMIT` to the CPU time.
"""

from __future__ import annotations

import base64
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Final

from benchmarks.exchanges import MANIFEST_TYPE, read
from benchmarks.processes import cpu_seconds, process_tree
from benchmarks.servers import ROOT, free_port
from benchmarks.wire import Connection, ExchangeFailedError

LIMIT: Final = 0.10
ROUNDS: Final = 15
GETS: Final = 3000
READY_SECONDS: Final = 20
MANIFEST: Final = json.dumps(
    {"schemaVersion": 2, "mediaType": MANIFEST_TYPE.replace("manifest", "index"), "manifests": []}
).encode()


class Measured:
    """A running registry, and the request that is measured."""

    def __init__(self, command: str, account: str, folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        self._data = folder / command
        self.name = f"{account}/cost"
        self._secrets: tuple[str, ...] = ()
        if command == "serve":
            self._secrets = self._initialize(account)
        self.process = subprocess.Popen(
            self._command(command, "--port", str(self.port)),
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._wait()
        authorization = self._sign_in() if self._secrets else {}
        path = f"/v2/{self.name}/manifests/v1"
        headers = {"Content-Type": MANIFEST_TYPE.replace("manifest", "index"), **authorization}
        self._call("PUT", path, MANIFEST, headers)
        self.connection = Connection(self.url)
        lines = [f"{name}: {value}" for name, value in authorization.items()]
        self.request = self.connection.request("GET", path, *lines)
        self.costs: list[float] = []

    def run(self) -> None:
        """Send `GETS` requests; append the server's CPU time per request to `costs`."""
        processes = process_tree(self.process.pid)
        before = cpu_seconds(processes)
        for _ in range(GETS):
            self.connection.send(self.request)
            head = self.connection.head()
            if head.status != 200 or self.connection.discard(head) != len(MANIFEST):
                raise ExchangeFailedError(f"GET manifest: {head.status}")
        self.costs.append((cpu_seconds(processes) - before) / GETS)

    def stop(self) -> None:
        """Stop the registry."""
        self.process.terminate()
        self.process.wait(30)

    def _command(self, command: str, *options: str) -> list[str]:
        return [sys.executable, "-m", "registry", command, "--data", str(self._data), *options]

    def _initialize(self, account: str) -> tuple[str, ...]:
        """Run ``entrepot init``; return the id and secret of its access key."""
        shown = subprocess.run(
            self._command("init", "--account", account, "--admin-email", "a@example.org"),
            env=self._environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        labels = ("access key id", "secret access key")
        return tuple(re.findall(rf"{label} +(\S+)", shown)[0] for label in labels)

    def _sign_in(self) -> dict[str, str]:
        """Return the header with a bearer token for the repository."""
        form = urllib.parse.urlencode({"grant_type": "client_credentials"}).encode()
        access = self._call("POST", "/v1/oauth/token", form, _basic(*self._secrets))
        headers = {"Authorization": f"Bearer {access['access_token']}"}
        login = self._call("POST", "/v1/authorization-token", b"", headers)
        path = f"/v2/token?scope=repository:{self.name}:pull,push"
        bearer = self._call("GET", path, None, _basic(login["username"], login["password"]))
        return {"Authorization": f"Bearer {bearer['token']}"}

    def _call(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Any:  # noqa: ANN401
        request = urllib.request.Request(self.url + path, body, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            content = answer.read()
        return json.loads(content) if content else None

    def _wait(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                connection = Connection(self.url)
                read(connection, "/readyz")
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                connection.close()
                return


def main() -> int:
    """Measure and print; return 0 if within the limit, else 1."""
    with tempfile.TemporaryDirectory(prefix="bearer-cost-") as folder:
        plain = Measured("dev", "dev", Path(folder))
        signed = Measured("serve", "acme", Path(folder))
        try:
            for number in range(ROUNDS + 1):
                for one in (plain, signed) if number % 2 else (signed, plain):
                    one.run()
        finally:
            plain.stop()
            signed.stop()
    ratios = [
        with_bearer / without
        for with_bearer, without in zip(signed.costs[1:], plain.costs[1:], strict=True)
    ]
    more = statistics.median(ratios) - 1
    for label, one in (("without a bearer", plain), ("with a bearer", signed)):
        print(f"{label:18}{statistics.median(one.costs[1:]) * 1e6:8.1f} µs of CPU per manifest GET")
    print(f"{'more':18}{more:8.1%} (limit {LIMIT:.0%}; median of {ROUNDS} rounds of {GETS})")
    return 0 if more <= LIMIT else 1


def _basic(user: str, password: str) -> dict[str, str]:
    pair = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}


if __name__ == "__main__":
    sys.exit(main())

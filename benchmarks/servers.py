"""Registries that the benchmarks start on an empty folder, and stop.

To add a peer, add an entry to `KINDS`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.exchanges import read
from benchmarks.wire import Connection, ExchangeFailedError

ROOT = Path(__file__).resolve().parent.parent
READY_SECONDS = 20
STOP_SECONDS = 35


class UnavailableError(Exception):
    """A registry cannot be started: it is not installed, or was not ready in time."""


@dataclass(frozen=True)
class Kind:
    """How to start one kind of registry."""

    notes: str  # its settings, for the report
    command: Callable[[Path, int, int], list[str]]  # data folder, port, workers
    version: Callable[[], str]  # raises UnavailableError


class Server:
    """A registry over `folder`, which listens at `url` once started."""

    def __init__(self, kind: Kind, folder: Path, workers: int) -> None:
        self.kind = kind
        self.folder = folder
        self.workers = workers
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    @property
    def pid(self) -> int:
        """Return the id of its main process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it with an empty folder, and wait until it is ready."""
        shutil.rmtree(self.folder, ignore_errors=True)
        data = self.folder / "data"
        data.mkdir(parents=True)
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                self.kind.command(data, port, self.workers),
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
                start_new_session=True,
            )
        self._wait_ready()

    def stop(self) -> None:
        """Stop it and delete its folder."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
            self._process = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def _wait_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + READY_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                connection = Connection(self.url)
                read(connection, "/v2/")
                connection.close()
            except (OSError, ExchangeFailedError):
                time.sleep(0.05)
            else:
                return
        log = (self.folder / "log").read_text(errors="replace")[-2000:]
        raise UnavailableError(f"{self._process.args!r} did not become ready:\n{log}")


def free_port() -> int:
    """Return a free TCP port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _entrepot_command(data: Path, port: int, workers: int) -> list[str]:
    options = ["--port", str(port), "--data", str(data), "--workers", str(workers)]
    return [sys.executable, "-m", "registry", "dev", *options]


def _entrepot_version() -> str:
    if not (ROOT / "src" / "registry" / "__main__.py").exists():
        raise UnavailableError("entrepot: src/registry/__main__.py is missing from this checkout")
    return f"this checkout, Python {sys.version.split()[0]}"


def _docker_registry_command(data: Path, port: int, workers: int) -> list[str]:
    del workers  # one process; Go uses all cores by itself
    config = data.parent / "config.json"
    document = {
        "version": "0.1",
        "log": {"accesslog": {"disabled": True}, "level": "warn"},
        "storage": {
            "filesystem": {"rootdirectory": str(data)},
            "cache": {"blobdescriptor": "inmemory"},
            "delete": {"enabled": True},
            "maintenance": {"uploadpurging": {"enabled": False}},
        },
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    config.write_text(json.dumps(document))  # JSON is YAML
    return ["docker-registry", "serve", str(config)]


def _docker_registry_version() -> str:
    program = shutil.which("docker-registry")
    if program is None:
        raise UnavailableError(
            "docker-registry is not installed; on Debian: apt-get install docker-registry"
        )
    return subprocess.check_output([program, "--version"], text=True).strip()


KINDS = {
    "entrepot": Kind(
        "`entrepot dev`: SQLite, filesystem store, no sign-in, access log on",
        _entrepot_command,
        _entrepot_version,
    ),
    "docker-registry": Kind(
        "filesystem store, in-memory descriptor cache, access log off, log level warn",
        _docker_registry_command,
        _docker_registry_version,
    ),
}

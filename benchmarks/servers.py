"""Registries that the benchmarks start on an empty folder, and stop.

To add a peer, add an entry to `KINDS`.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.exchanges import read
from benchmarks.signed_in import Bearers, initialize
from benchmarks.wire import Connection, ExchangeFailedError

if TYPE_CHECKING:
    from benchmarks.s3_stub import Stub

ROOT = Path(__file__).resolve().parent.parent
ACCOUNT = "dev"  # so that the names of repositories are those of `entrepot dev`
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
    settings: Mapping[str, str] = field(default_factory=dict)  # of ours, without ENTREPOT_
    is_ours: bool = True
    signs_in: bool = False
    on_postgresql: bool = False  # with a server of its own
    in_bucket: bool = False  # of the SeaweedFS that all of a run share


class Server:
    """A registry over `folder`, which listens at `url` once started."""

    def __init__(
        self, kind: Kind, folder: Path, workers: int, settings: Mapping[str, str] | None = None
    ) -> None:
        self.kind = kind
        self.folder = folder
        self.workers = workers
        self.repositories: Sequence[str] = ()
        """Those that a client who signs in may use."""
        self.url = ""
        self.database_url = ""
        """Of the database of one of ours, while it is started."""
        self._settings = {**kind.settings, **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._database = ExitStack()
        self._database_pids: list[int] = []
        self.bearers: Bearers | None = None
        """How its clients sign in, if they do."""
        self.one_time_password = ""
        """Of its first person, who has not signed in yet."""

    @property
    def pids(self) -> list[int]:
        """Return the ids of its main process and of its database's."""
        assert self._process is not None
        return [self._process.pid, *self._database_pids]

    def connection(self) -> Connection:
        """Return a new connection, signed in if that is needed."""
        return Connection(self.url, *([self.bearers.header()] if self.bearers else []))

    def start(self, unasked: Callable[[], None] | None = None) -> None:
        """Start it with an empty folder, and wait until it is ready.

        Call `unasked` when one of ours says so itself, before anybody has asked it anything.
        """
        shutil.rmtree(self.folder, ignore_errors=True)
        data = self.folder / "data"
        data.mkdir(parents=True)
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.database_url = f"sqlite:///{data / 'metadata.db'}" if self.kind.is_ours else ""
        environment = self._environment()
        made = initialize(data, ACCOUNT, environment) if self.kind.signs_in else None
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                self.kind.command(data, port, self.workers),
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=environment,
                start_new_session=True,
            )
        deadline = time.monotonic() + READY_SECONDS
        if unasked is not None and self.kind.is_ours:
            self._wait_until(self._says_ready, deadline)
            unasked()
        self._wait_until(self._answers, deadline)
        if made is not None:
            self.bearers = Bearers(self.url, made.pair, self.repositories)
            self.one_time_password = made.one_time_password

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
        self._database.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _environment(self) -> dict[str, str]:
        """Return the environment of its processes; start its database if it needs one."""
        settings = {f"ENTREPOT_{name}": value for name, value in self._settings.items()}
        if self.kind.on_postgresql:
            from benchmarks.scale_stores import postgresql  # noqa: PLC0415 - others need no driver

            database = self._database.enter_context(postgresql())
            self._database_pids = [database.pid]
            self.database_url = database.create("bench").url
            settings["ENTREPOT_DATABASE_URL"] = self.database_url
        if self.kind.is_ours and self.kind.in_bucket:
            found = {**_bucket().settings, "STORE_S3_PREFIX": self.folder.name}
            settings |= {f"ENTREPOT_{name}": value for name, value in found.items()}
        return {**os.environ, "PYTHONPATH": str(ROOT / "src"), **settings}

    def _wait_until(self, is_ready: Callable[[], bool], deadline: float) -> None:
        assert self._process is not None
        while self._process.poll() is None and time.monotonic() < deadline:
            if is_ready():
                return
            time.sleep(0.05)
        raise UnavailableError(f"{self._process.args!r} did not become ready:\n{self._log[-2000:]}")

    @property
    def _log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def _says_ready(self) -> bool:
        return "Entrepot is ready" in self._log

    def _answers(self) -> bool:
        try:
            connection = Connection(self.url)
            read(connection, "/readyz" if self.kind.signs_in else "/v2/")
            connection.close()
        except (OSError, ExchangeFailedError):
            return False
        return True


def free_port() -> int:
    """Return a free TCP port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _entrepot_command(data: Path, port: int, workers: int) -> list[str]:
    return _ours("dev", data, port, workers)


def _serve_command(data: Path, port: int, workers: int) -> list[str]:
    return _ours("serve", data, port, workers)


def _ours(command: str, data: Path, port: int, workers: int) -> list[str]:
    options = ["--port", str(port), "--data", str(data), "--workers", str(workers)]
    return [sys.executable, "-m", "registry", command, *options]


def _entrepot_version() -> str:
    if not (ROOT / "src" / "registry" / "__main__.py").exists():
        raise UnavailableError("entrepot: src/registry/__main__.py is missing from this checkout")
    return f"this checkout, Python {sys.version.split()[0]}"


def _docker_registry_command(data: Path, port: int, workers: int) -> list[str]:
    del workers  # one process; Go uses all cores by itself
    return ["docker-registry", "serve", str(_distribution_config(data, port))]


def _distribution_command(data: Path, port: int, workers: int) -> list[str]:
    del workers
    # Without a collector of traces it would log an error for each batch of them.
    program = ["env", "OTEL_TRACES_EXPORTER=none", "registry"]
    return [*program, "serve", str(_distribution_config(data, port))]


def _docker_registry_in_bucket_command(data: Path, port: int, workers: int) -> list[str]:
    del workers
    settings = _bucket().settings
    storage = {
        "redirect": {"disable": True},
        "s3": {
            "accesskey": os.environ["AWS_ACCESS_KEY_ID"],
            "secretkey": os.environ["AWS_SECRET_ACCESS_KEY"],
            "region": settings["STORE_S3_REGION"],
            "regionendpoint": settings["STORE_S3_ENDPOINT"],
            "bucket": settings["STORE_S3_BUCKET"],
            "rootdirectory": f"/{data.parent.name}",
            "secure": False,
        },
    }
    # It speaks without TLS, and ends where the environment names a file of authorities.
    program = ["env", "-u", "AWS_CA_BUNDLE", "docker-registry"]
    return [*program, "serve", str(_distribution_config(data, port, storage))]


_SHARED = ExitStack()


@cache
def _bucket() -> Stub:
    """Start the SeaweedFS of this run, whose bucket registries share, each below its prefix."""
    from benchmarks.s3_stub import seaweedfs  # noqa: PLC0415 - others need no boto3

    atexit.register(_SHARED.close)
    return _SHARED.enter_context(seaweedfs(None))


def _distribution_config(
    data: Path, port: int, storage: Mapping[str, object] | None = None
) -> Path:
    config = data.parent / "config.json"
    files = {"filesystem": {"rootdirectory": str(data)}}
    document = {
        "version": "0.1",
        "log": {"accesslog": {"disabled": True}, "level": "warn"},
        "storage": {
            **(storage or files),
            "cache": {"blobdescriptor": "inmemory"},
            "delete": {"enabled": True},
            "maintenance": {"uploadpurging": {"enabled": False}},
        },
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    config.write_text(json.dumps(document))  # JSON is YAML
    return config


def _olareg_command(data: Path, port: int, workers: int) -> list[str]:
    del workers
    address = ["--addr", "127.0.0.1", "--port", str(port)]
    return ["olareg", "serve", *address, "--dir", str(data), "--api-blob-delete", "--api-delete"]


def _version_of(program: str, where: str, *words: str) -> Callable[[], str]:
    """Return what asks a program on the `PATH` for its version; `where` says how to get it."""

    def ask() -> str:
        if shutil.which(program) is None:
            raise UnavailableError(f"{program} is not installed; {where}")
        return subprocess.check_output([program, *words], text=True).splitlines()[0].strip()

    return ask


KINDS = {
    "entrepot": Kind(
        "`entrepot dev`: SQLite, filesystem store, no sign-in, access log on",
        _entrepot_command,
        _entrepot_version,
    ),
    "entrepot-plain": Kind(
        "`entrepot serve`: SQLite, plain blobs, bearers, access log and audit log on",
        _serve_command,
        _entrepot_version,
        {"SEALING": "off"},
        signs_in=True,
    ),
    "entrepot-sealed": Kind(
        "`entrepot serve`: SQLite, sealed blobs, bearers, access log and audit log on",
        _serve_command,
        _entrepot_version,
        signs_in=True,
    ),
    "entrepot-postgresql": Kind(
        "`entrepot dev`: PostgreSQL, filesystem store, no sign-in, access log on",
        _entrepot_command,
        _entrepot_version,
        on_postgresql=True,
    ),
    "entrepot-sealed-postgresql": Kind(
        "`entrepot serve`: PostgreSQL, sealed blobs, bearers, access log and audit log on",
        _serve_command,
        _entrepot_version,
        signs_in=True,
        on_postgresql=True,
    ),
    "entrepot-bucket": Kind(
        "`entrepot serve`: SQLite, plain blobs in a bucket of SeaweedFS, bearers, no cache",
        _serve_command,
        _entrepot_version,
        {"SEALING": "off"},
        signs_in=True,
        in_bucket=True,
    ),
    "entrepot-bucket-cached": Kind(
        "`entrepot serve`: as in a bucket, with a cache of 4 GiB on its disk",
        _serve_command,
        _entrepot_version,
        {"SEALING": "off", "CACHE_BYTES": str(4 << 30)},
        signs_in=True,
        in_bucket=True,
    ),
    "entrepot-bucket-sealed": Kind(
        "`entrepot serve`: as in a bucket, sealed",
        _serve_command,
        _entrepot_version,
        signs_in=True,
        in_bucket=True,
    ),
    "docker-registry-bucket": Kind(
        "in a bucket of the same SeaweedFS, no redirects, in-memory descriptor cache",
        _docker_registry_in_bucket_command,
        _version_of("docker-registry", "on Debian: apt-get install docker-registry", "--version"),
        is_ours=False,
        in_bucket=True,
    ),
    "docker-registry": Kind(
        "filesystem store, in-memory descriptor cache, access log off, log level warn",
        _docker_registry_command,
        _version_of("docker-registry", "on Debian: apt-get install docker-registry", "--version"),
        is_ours=False,
    ),
    "distribution": Kind(
        "CNCF Distribution 3: filesystem store, in-memory descriptor cache, access log off",
        _distribution_command,
        _version_of("registry", "build CNCF Distribution 3 and put it on the PATH", "--version"),
        is_ours=False,
    ),
    "olareg": Kind(
        "directory store, no access log",
        _olareg_command,
        _version_of("olareg", "build it and put it on the PATH", "version"),
        is_ours=False,
    ),
}


def kind_of(text: str) -> tuple[Kind, dict[str, str]]:
    """Return the kind that a word of the command line names, and the settings behind it.

    They are those of ours without their prefix, as in ``entrepot:INLINE_MAX_BYTES:0``.
    """
    name, *rest = text.split(":")
    return KINDS[name], dict(zip(rest[::2], rest[1::2], strict=True))

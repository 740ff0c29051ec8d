"""A fleet as ``deploy/fleet/compose.yaml`` has it, its services as processes of this machine.

Each has the command and the environment of its service; the names of services, and the ports and
folders in their containers, are those of the test. HAProxy has its file as it is. Between each node
and what it needs is a network of its own that can be cut, held and made slow.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import httpx
import psycopg
import yaml
from psycopg import sql

from tests.certificates import self_signed
from tests.clients.programs import require_root
from tests.live import LiveRegistry, start_registry
from tests.loaded import ENTREPOT, ROOT, program_environment, run_loaded
from tests.postgresql import UNPRIVILEGED, free_port, run, server_programs
from tests.relay import Relay
from tests.tools import require_tool
from tests.waiting import until

FLEET: Final = ROOT / "deploy" / "fleet"
NODES: Final = ("node-1", "node-2")
NEEDED: Final = ("postgresql", "seaweedfs")
"""Services that nodes ask."""
_GIVEN: Final = {"POSTGRES_PASSWORD": "of-the-database", "S3_SECRET": "of-the-store"}
_VARIABLE: Final = re.compile(r"\$\{(\w+)(?::\?[^}]*)?\}")
_STORE_PORTS: Final = (
    *("s3.port.grpc", "master.port", "master.port.grpc", "volume.port", "volume.port.grpc"),
    *("filer.port", "filer.port.grpc"),
)
_ALONE: Final = ("-master.electionTimeout=1s", "-s3.port.iceberg=0", "-s3.port.lance=0")
"""No wait for others to lead, and no ports of what nobody asks for."""


class Fleet:
    """The services; each can be killed, and started again on the same data."""

    def __init__(self, folder: Path, cluster: Path) -> None:
        """Keep all in `folder`, but the database in `cluster`: it runs as another user."""
        self.folder = folder
        self._cluster = cluster
        self.port = free_port()
        self.host = f"127.0.0.1:{self.port}"
        self.url = f"https://{self.host}"
        self._services: Mapping[str, Any] = yaml.safe_load((FLEET / "compose.yaml").read_text())[
            "services"
        ]
        self._ports = {name: free_port() for name in (*NEEDED, *NODES)}
        self.ways: dict[tuple[str, str], Relay] = {}
        """The network between a node and a service."""
        self._store_ports = {
            **{name: free_port() for name in _STORE_PORTS},
            "s3.port": self._ports["seaweedfs"],
        }
        self._store: subprocess.Popen[bytes] | None = None
        self._account = UNPRIVILEGED if os.geteuid() == 0 else None
        self._running: dict[str, LiveRegistry] = {}

    @property
    def certificate(self) -> Path:
        """Return the file of the certificate that clients trust."""
        return self.folder / "certificate.pem"

    def url_of(self, node: str) -> str:
        """Return where a node is without the proxy."""
        return f"http://127.0.0.1:{self._ports[node]}"

    @contextmanager
    def networked(self) -> Iterator[None]:
        """Open the ways between the nodes and what they need."""
        with ExitStack() as opened:
            for node in NODES:
                for service in NEEDED:
                    way = opened.enter_context(Relay(self._ports[service]))
                    self.ways[node, service] = way
            yield

    def start_database(self) -> None:
        """Make the cluster if there is none, and start it."""
        programs = server_programs()
        if not (self._cluster / "data").exists():
            user = self._services["postgresql"]["environment"]["POSTGRES_USER"]
            if self._account:
                shutil.chown(self._cluster, self._account, self._account)
            how = ("--auth", "trust", "--encoding", "UTF8", "--locale", "C")
            run(
                *(programs / "initdb", "--pgdata", self._cluster / "data"),
                *("--username", user, *how),
                account=self._account,
            )
        options = " ".join(
            [
                *self._services["postgresql"]["command"][1:],
                *("-c listen_addresses=127.0.0.1", f"-c port={self._ports['postgresql']}"),
                f"-c unix_socket_directories={self._cluster}",
            ]
        )
        self._control("--log", self._cluster / "log", "--options", options, "start")

    def make_database(self) -> None:
        """Make the database that the image makes at its first start."""
        environment = self._services["postgresql"]["environment"]
        user, port = environment["POSTGRES_USER"], self._ports["postgresql"]
        server = f"postgresql://{user}@127.0.0.1:{port}/postgres"
        with psycopg.connect(server, autocommit=True) as connection:
            name = sql.Identifier(environment["POSTGRES_DB"])
            connection.execute(sql.SQL("CREATE DATABASE {}").format(name))

    def kill_database(self) -> None:
        """End it as a loss of power does: what it has flushed is there, nothing is tidied."""
        self._control("--mode", "immediate", "stop")

    def _control(self, *words: str | Path) -> None:
        data = ("--pgdata", self._cluster / "data")
        control = (server_programs() / "pg_ctl", *data, "--wait")
        run(*control, *words, account=self._account)

    def start_store(self) -> None:
        """Start SeaweedFS, and make its bucket as the check of its health does."""
        service = self._services["seaweedfs"]
        folder = self.folder / "seaweedfs"
        (folder / "data").mkdir(parents=True, exist_ok=True)
        words = [
            word.replace("-dir=/data", f"-dir={folder / 'data'}").replace(
                "=seaweedfs", "=127.0.0.1"
            )
            for word in service["command"]
        ]
        ports = (f"-{name}={port}" for name, port in self._store_ports.items())
        given = {name: self._meant(text) for name, text in service["environment"].items()}
        environment = {**os.environ, **given, "HOME": str(folder)}
        beside_python = str(Path(sys.executable).parent)
        program = shutil.which("weed", path=beside_python) or require_tool("weed")
        with (folder / "log").open("ab") as log:
            self._store = subprocess.Popen(
                [program, *words, "-ip.bind=127.0.0.1", "-volume.max=100", *ports, *_ALONE],
                stdout=log,
                stderr=log,
                env=environment,
            )
        master = f"127.0.0.1:{self._store_ports['master.port']}"
        _, check = service["healthcheck"]["test"]
        check = check.replace(
            "seaweedfs:9333", f"{master}.{self._store_ports['master.port.grpc']}"
        ).replace("weed ", f"{program} ")

        def is_healthy() -> bool:
            with suppress(subprocess.TimeoutExpired):
                done = subprocess.run(
                    ["sh", "-c", check],
                    env=environment,
                    capture_output=True,
                    check=False,
                    timeout=10,
                )
                return done.returncode == 0
            return False

        until(is_healthy, lambda: (folder / "log").read_text()[-3000:])

    def kill_store(self) -> None:
        """End it as a crash does."""
        assert self._store is not None
        self._store.kill()
        self._store.wait()

    def environment(self, node: str) -> dict[str, str]:
        """Return the environment of a node."""
        found = {
            name: self._meant(str(text), node)
            for name, text in self._services[node]["environment"].items()
        }
        return found | {
            "ENTREPOT_STORE_S3_READ_SECONDS": "1",
            "ENTREPOT_ROOT_KEY_FILE": str(self.folder / "root.key"),
            "ENTREPOT_TRUSTED_PROXIES": "127.0.0.1",
            "ENTREPOT_METRICS": "",
        }

    def _meant(self, text: str, node: str = "") -> str:
        """Return a text with the values of variables, and with the places of this test.

        For a node, these are at the other end of its network.
        """
        given = {**_GIVEN, "REGISTRY_HOST": self.host}
        text = _VARIABLE.sub(lambda variable: given[variable[1]], text)
        ways = {service: way.port for (of, service), way in self.ways.items() if of == node}
        for service, port in {**self._ports, **ways}.items():
            text = re.sub(rf"\b{service}:\d+", f"127.0.0.1:{port}", text)
        return text

    def command(self, *words: str) -> str:
        """Run a command of ``entrepot`` on the first node, which must succeed."""
        node = NODES[0]
        ended = run_loaded(
            ENTREPOT,
            (*words, "--data", str(self._data(node))),
            {**program_environment(), **self.environment(node)},
            timeout=110,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def start_node(self, node: str) -> None:
        """Start a node, and wait until it takes requests; again if it ends, as compose does."""
        (command,) = self._services[node]["command"]
        for is_last in (False, False, True):
            try:
                self._running[node] = start_registry(
                    self._data(node),
                    *("--port", str(self._ports[node])),
                    command=command,
                    env=self.environment(node),
                    has_session=True,
                )
            except RuntimeError:  # such as that the store did not answer
                if is_last:
                    raise
                time.sleep(1)
            else:
                return

    def kill_node(self, node: str) -> None:
        """End all processes of a node at once."""
        killed = self._running.pop(node)
        os.killpg(killed.process.pid, signal.SIGKILL)
        killed.process.wait()
        assert killed.reader is not None
        killed.reader.join(30)
        self._keep_log(node, killed)

    def stop_node(self, node: str) -> None:
        """Stop a node in order."""
        stopped = self._running.pop(node)
        stopped.process.send_signal(signal.SIGTERM)  # nobody needs to be sent elsewhere: a second
        time.sleep(0.2)  # one lets it drain at once
        assert stopped.stop() == 0, stopped.log
        self._keep_log(node, stopped)

    def start_nodes(self) -> None:
        """Start both."""
        with ThreadPoolExecutor() as pool:
            [*pool.map(self.start_node, NODES)]

    def stop_nodes(self) -> None:
        """Stop all that run."""
        with ThreadPoolExecutor() as pool:
            [*pool.map(self.stop_node, tuple(self._running))]

    def log(self, node: str) -> str:
        """Return what a node has said in all its lives."""
        running = self._running.get(node)
        kept = self.folder / f"{node}.log"
        before = kept.read_text() if kept.exists() else ""
        return before + (running.log if running else "")

    def _keep_log(self, node: str, ended: LiveRegistry) -> None:
        with (self.folder / f"{node}.log").open("a") as kept:
            kept.write(f"{ended.log}\n")

    def _data(self, node: str) -> Path:
        """Return the folder of a node's volume."""
        folder = self.folder / node
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    @contextmanager
    def proxied(self) -> Iterator[None]:
        """Run HAProxy in front of the nodes."""
        certificate, key = self_signed(self.folder, "registry.example.com")
        both = self.folder / "cert-and-key.pem"
        both.write_bytes(certificate.read_bytes() + key.read_bytes())
        environment = {
            "ENTREPOT_HTTPS": self.host,
            "ENTREPOT_HTTP": f"127.0.0.1:{free_port()}",
            "ENTREPOT_CERTIFICATE": str(both),
            "ENTREPOT_NODE_1": f"127.0.0.1:{self._ports['node-1']}",
            "ENTREPOT_NODE_2": f"127.0.0.1:{self._ports['node-2']}",
        }
        command = [require_tool("haproxy"), "-db", "-f", str(FLEET / "haproxy.cfg")]
        with (self.folder / "haproxy.log").open("wb") as log:
            process = subprocess.Popen(
                command, env={**os.environ, **environment}, stdout=log, stderr=log
            )
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)

    def wait_until_ready(self) -> None:
        """Wait until the proxy finds a node that is ready."""

        trusted = ssl.create_default_context(cafile=str(self.certificate))

        def is_ready() -> bool:
            try:
                return httpx.get(f"{self.url}/readyz", verify=trusted, timeout=10).is_success
            except httpx.TransportError:
                return False

        until(is_ready, lambda: f"{self.log(NODES[0])}\n{self.log(NODES[1])}", seconds=90)


@contextmanager
def running_fleet(folder: Path) -> Iterator[tuple[Fleet, str]]:
    """Run a new install; yield it, and what ``entrepot init`` showed."""
    require_root("PostgreSQL beside podman")
    with tempfile.TemporaryDirectory(prefix="entrepot-postgresql-") as cluster:
        fleet = Fleet(folder, Path(cluster))
        fleet.start_database()
        try:
            yield from _served(fleet)
        finally:
            fleet.kill_database()


def _served(fleet: Fleet) -> Iterator[tuple[Fleet, str]]:
    fleet.make_database()
    with fleet.networked(), ThreadPoolExecutor() as pool:
        shown = pool.submit(
            fleet.command, "init", "--account", "acme", "--admin-email", "admin@example.org"
        )
        fleet.start_store()
        try:
            yield from _proxied(fleet, shown.result())
        finally:
            fleet.kill_store()


def _proxied(fleet: Fleet, shown: str) -> Iterator[tuple[Fleet, str]]:
    with fleet.proxied():
        try:
            fleet.start_nodes()
            fleet.wait_until_ready()
            yield fleet, shown
        finally:
            fleet.stop_nodes()

"""A machine's folder for database servers, who drives them, and a count of all that they leave."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import psycopg
import psycopg.sql

import cloudcore
from cloudcore.acme.key_files import key_pem
from cloudcore.certificate import authority
from cloudcore.certificate.authority import Places
from cloudcore.certificate.keys import new_private_key
from cloudcore.nodes import kept_process
from tests import database_driver
from tests.instance_world import (
    HIERARCHIES,
    PYTHON,
    Driving,
    is_empty,
    lines,
    processes_in,
    until,
)
from tests.postgresql import free_port
from tests.tools import missing, require_tool

PASSWORD: Final = "of-the-owner-1"
MEMORY_MB: Final = 256
NO_OTHERS: Final = 65_533
"""A user that nobody else's tests run programs as: what a user may start is counted for all."""


@dataclass(frozen=True)
class Left:
    """What there is of servers on this machine."""

    processes: frozenset[int]
    groups: frozenset[str]
    mounts: frozenset[str]
    namespaces: frozenset[str]
    files: frozenset[str]


class ServerMachine:
    """A folder for servers, of a service with root or without."""

    def __init__(self, top: Path, *, is_root: bool) -> None:
        self.is_root = is_root
        self.top = top
        self.base = top / "node"
        self._groups: list[Path] = []
        self.ids: set[str] = set()
        self.port = free_port()
        shutil.copytree(Path(cloudcore.__file__).parent, top / "lib/cloudcore")
        shutil.copy(database_driver.__file__, top / "lib")
        self.base.mkdir(mode=0o700)
        self.root = top / "root.pem"
        self.issue()
        if not is_root:
            os.chown(self.base, NO_OTHERS, NO_OTHERS)
            self._delegate()

    def _delegate(self) -> None:
        """Make groups in which another user may make groups."""
        for controller in ("memory", "pids", "cpu"):
            group = HIERARCHIES / controller / f"given-{self.top.name}"
            if not group.parent.is_dir():
                missing(f"the controller {controller} of version 1")
            group.mkdir()
            for each in (group, group / "cgroup.procs", group / "tasks"):
                os.chown(each, NO_OTHERS, NO_OTHERS)
            self._groups.append(group)

    def issue(self) -> None:
        """Make another root, and a chain and a key for this machine."""
        self.chain, self.key = _certificate(self.root)

    def close(self) -> None:
        for group in self._groups:
            until(partial(is_empty, group))
            group.rmdir()
        shutil.rmtree(self.top)

    @contextlib.contextmanager
    def driving(self, place: str = "") -> Iterator[Driving]:
        """Start who drives, who may die at a place."""
        options: dict[str, Any] = {}
        if not self.is_root:
            options |= {"user": NO_OTHERS, "group": NO_OTHERS, "extra_groups": ()}
        program = str(self.top / "lib/database_driver.py")
        with subprocess.Popen(
            (PYTHON, program, str(self.base), str(self.port), *place.split()),
            env={"PYTHONPATH": str(self.top / "lib"), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            umask=0o077,  # as the unit of systemd has it
            preexec_fn=self._enter,  # noqa: PLW1509 - it opens and writes files alone
            **options,
        ) as process:
            try:
                yield Driving(process)
            finally:
                process.kill()

    def _enter(self) -> None:
        for group in self._groups:
            (group / "cgroup.procs").write_text("0")

    def spec(self, **changes: object) -> dict[str, Any]:
        """Return a server of this machine."""
        server_id = str(uuid.uuid4())
        self.ids.add(server_id)
        given = {"id": server_id, "version": 15, "memory_mb": MEMORY_MB, "cpu_millis": 2000}
        return given | {"disk_mb": 500, "port": self.port} | changes

    def made(self, driving: Driving, spec: Mapping[str, Any]) -> None:
        """Make a server, start it, and give its owner a password."""
        driving("create", spec)
        driving("reload_certificate", spec, self.chain, self.key)
        driving("start", spec)
        driving("set_password", spec, "admin", PASSWORD)

    def folder(self, spec: Mapping[str, Any]) -> Path:
        return self.base / str(spec["id"])

    def keeper(self, spec: Mapping[str, Any]) -> int:
        """Return the process that the service knows."""
        found = kept_process.find(self.folder(spec))
        assert found is not None
        return found.pid

    def processes(self, spec: Mapping[str, Any]) -> set[int]:
        """Return those of a server itself, by the groups that bound it."""
        return {
            int(pid)
            for group in HIERARCHIES.glob(f"pids/**/entrepot-database-{spec['id']}")
            for pid in (group / "cgroup.procs").read_text().split()
        }

    @contextlib.contextmanager
    def owner(
        self, spec: Mapping[str, Any], database: str = "main", **changes: object
    ) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """Connect as clients do."""
        options: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": spec["port"],
            "dbname": database,
            "user": "admin",
            "password": PASSWORD,
            "sslmode": "verify-full",
            "sslrootcert": str(self.root),
            "connect_timeout": 20,
        }
        with psycopg.connect(**options | changes, autocommit=True) as connection:
            yield connection

    def inside(self, spec: Mapping[str, Any], script: str) -> str:
        """Return what a script of the shell says that the server runs."""
        with self.superuser(spec) as session:
            session.execute("CREATE TEMP TABLE said (line text)")
            program = f"sh -c {shlex.quote(script)} 2>&1 | tr '\\\\\\t' '  '"
            session.execute(
                psycopg.sql.SQL("COPY said FROM PROGRAM {}").format(psycopg.sql.Literal(program))
            )
            return "\n".join(str(line) for (line,) in session.execute("SELECT line FROM said"))

    @contextlib.contextmanager
    def superuser(
        self, spec: Mapping[str, Any], database: str = "postgres"
    ) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """Connect over the private socket: who has taken a server over can do as much."""
        opened = os.open(self.folder(spec) / "sockets", os.O_PATH)
        try:
            with psycopg.connect(
                host=f"/proc/self/fd/{opened}",
                port=spec["port"],
                dbname=database,
                user="entrepot",
                autocommit=True,
            ) as connection:
                yield connection
        finally:
            os.close(opened)

    def left(self) -> Left:
        """Count what there is."""
        base = str(self.base)
        working = frozenset(processes_in(base))
        return Left(
            working,
            frozenset(
                str(each)
                for each in HIERARCHIES.glob("**/entrepot-database-*")
                if each.name.removeprefix("entrepot-database-") in self.ids
            ),
            frozenset(line for line in lines("/proc/self/mountinfo") if base in line),
            frozenset(_namespaces(working)),
            frozenset(each.name for each in self.base.iterdir()),
        )


def _namespaces(processes: Iterable[int]) -> Iterator[str]:
    for pid in processes:
        with contextlib.suppress(OSError):
            yield str(Path(f"/proc/{pid}/ns/net").readlink())


def _certificate(root: Path) -> tuple[str, str]:
    """Write a root; return a chain and a key for this machine."""
    now = time.time_ns() // 1000
    signer = authority.new_root("test", now)
    root.write_text(authority.pem(signer.certificate))
    root.chmod(0o644)
    key = new_private_key("ecdsa-p256")
    places = Places("http://localhost/certificate", "http://localhost/list")
    issuing = authority.new_issuing(signer, "test", places, now)
    made = authority.issue(issuing, ["127.0.0.1"], key.public_key(), places, now)
    chain = authority.pem(made) + authority.pem(issuing.certificate)
    return chain, key_pem(key).decode()


@contextlib.contextmanager
def server_machine(*, is_root: bool = True) -> Iterator[ServerMachine]:
    """Make a machine's folder, and look that nothing is left of it when it goes."""
    if os.geteuid() != 0:
        missing("root, who gives servers users and control groups")
    for program in ("bwrap", "unshare", "setpriv"):
        require_tool(program)
    if not Path("/usr/lib/postgresql/15/bin/postgres").exists():
        missing("PostgreSQL 15 is not installed")
    top = Path(tempfile.mkdtemp(prefix="servers-"))
    top.chmod(0o755)
    made = ServerMachine(top, is_root=is_root)
    try:
        yield made
        with made.driving() as driving:
            for server_id in driving("seen"):
                driving("remove", server_id, True)
        assert made.left() == Left(*[frozenset()] * 5)
    finally:
        made.close()

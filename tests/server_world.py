"""A machine's folder for database servers, who drives them, and a count of all that they leave."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import psycopg
import psycopg.sql

from cloudcore.certificate import authority
from cloudcore.certificate.authority import AuthorityUrls
from cloudcore.key_pairs import key_pem, new_private_key
from tests.postgresql import free_port
from tests.program_world import Driving, ProgramMachine
from tests.tools import missing, require_tool

PASSWORD: Final = "of-the-owner-1"
MEMORY_MB: Final = 2048
"""Files of tests may lie in memory, and count as the server's that writes them."""
NO_OTHERS: Final = 65_533
"""A user that nobody else's tests run programs as: what a user may start is counted for all."""


class ServerMachine(ProgramMachine):
    """A folder for servers, of a service with root or without."""

    group = "entrepot-database-"

    def __init__(self, top: Path, *, is_root: bool) -> None:
        super().__init__(top, "node", "databases", 0 if is_root else NO_OTHERS, free_port())
        self.is_root = is_root
        self.root = top / "root.pem"
        self.issue()

    def issue(self) -> None:
        """Make another root, and a chain and a key for this machine."""
        self.chain, self.key = _certificate(self.root)

    def spec(self, **changes: object) -> dict[str, Any]:
        """Return a server of this machine."""
        given = {"id": self.new_id(), "version": 15, "memory_mb": MEMORY_MB, "cpu_millis": 2000}
        return given | {"disk_mb": 500, "port": self.port} | changes

    def made(self, driving: Driving, spec: Mapping[str, Any]) -> None:
        """Start a server with the data of a new one, and give its owner a password."""
        self.put(driving, spec)
        driving("start", spec)
        driving("set_password", spec, "admin", PASSWORD)

    def put(self, driving: Driving, spec: Mapping[str, Any], data: Path | None = None) -> None:
        """Give a server, which does not run, a copy of data, or those of a new one; certify it."""
        data = data or self._new_data(driving)
        restoring = Path(driving("restoring", spec))
        owner = restoring.stat()
        restoring.rmdir()
        copy = self.folder(spec["id"]) / "data"
        subprocess.run(("cp", "-R", "--preserve=mode", data, copy), check=True)
        subprocess.run(("chown", "-R", f"{owner.st_uid}:{owner.st_gid}", copy), check=True)
        driving("reload_certificate", spec, self.chain, self.key)

    def _new_data(self, driving: Driving) -> Path:
        """Return the data of a new server, which are made once."""
        made = self.top / "new"
        if not made.exists():
            spec = self.spec()
            driving("create", spec)
            (self.folder(spec["id"]) / "data").rename(made)
            driving("remove", spec["id"], True)
        return made

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
        opened = os.open(self.folder(spec["id"]) / "sockets", os.O_PATH)
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


def _certificate(root: Path) -> tuple[str, str]:
    """Write a root; return a chain and a key for this machine."""
    now = time.time_ns() // 1000
    signer = authority.new_root("test", now)
    root.write_text(authority.pem(signer.certificate))
    root.chmod(0o644)
    key = new_private_key("ecdsa-p256")
    places = AuthorityUrls("http://localhost/certificate", "http://localhost/list")
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
    with made.closing(True):
        yield made

"""A PostgreSQL of the tests' own: made in a temporary folder, used, thrown away."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path
from typing import Final

import pytest

from tests.tools import missing

# Debian keeps the server programs of each major version off the PATH.
DEBIAN = Path("/usr/lib/postgresql")
# The server refuses to run as root; Debian's package brings this account.
UNPRIVILEGED = "postgres"
# Systems give ports from 32768 on, or higher ones, to who asks for any.
ASKED_FOR_BY_NUMBER: Final = range(10240, 32768)


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    """Run a PostgreSQL server and return the URL of its empty database ``postgres``.

    It keeps its durability (fsync on) and trusts whoever reaches it on 127.0.0.1.
    """
    programs = server_programs()
    account = UNPRIVILEGED if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="entrepot-postgresql-"))
    try:
        if account:
            shutil.chown(folder, account, account)
        cluster = folder / "cluster"
        run(
            *(programs / "initdb", "--pgdata", cluster, "--username", "postgres"),
            *("--auth", "trust", "--encoding", "UTF8", "--locale", "C"),
            account=account,
        )
        port = free_port()
        options = (
            f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={folder}"
            " -c autovacuum=off"  # plans are what tests make them, and no database is in use
        )
        control = (programs / "pg_ctl", "--pgdata", cluster, "--wait")
        run(
            *(*control, "--log", folder / "log", "--options", options, "start"),
            account=account,
        )
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
        run(*control, "--mode", "fast", "stop", account=account)
    finally:
        shutil.rmtree(folder)


def server_programs() -> Path:
    """Return the folder of the newest installed server, or skip (fail in CI) without one."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).parent
    found = sorted(DEBIAN.glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if not found:
        missing("no PostgreSQL server is installed")
    return found[-1].parent


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nobody listens on, to be bound by a program later.

    A port that the system chose would be free again until then, and it chooses from the same
    ones for whatever asks for any port, or connects: now and then it was another's by then.
    """
    for port in islice(_PORTS, len(ASKED_FOR_BY_NUMBER)):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("every port is taken")


def _own_ports() -> Iterator[int]:
    """Yield the ports of this process of the tests, from any one on, over and over."""
    process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    own = ASKED_FOR_BY_NUMBER[process :: int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))]
    first = secrets.randbelow(len(own))
    return cycle((*own[first:], *own[:first]))


_PORTS: Final = _own_ports()


def run(*command: str | Path, account: str | None) -> None:
    """Run a program of the server as `account`, by default the caller's; say why it failed."""
    # Into a file: a server that pg_ctl leaves behind would hold a pipe open for ever.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            command, user=account, stdout=output, stderr=output, cwd="/", check=False
        )
        output.seek(0)
        assert done.returncode == 0, f"{command}\n{output.read().decode()}"

"""A Docker engine on a private socket and data root, driven by its own client."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.clients.archives import files_in_archive
from tests.clients.programs import attempt, daemon, require_root, run, takes_connections
from tests.tools import missing, require_tool

# No network of its own, no firewall rules, no overlay mounts: images only move and rest here.
OPTIONS = (
    *("--iptables=false", "--ip6tables=false", "--bridge=none", "--storage-driver=vfs"),
    "--exec-opt=native.cgroupdriver=cgroupfs",
)
CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Docker:
    """A Docker engine that answers on its own socket."""

    folder: Path
    program: str

    @property
    def options(self) -> tuple[str, ...]:
        return ("--config", f"{self.folder}/client", "--host", f"unix://{self.folder}/socket")

    def run(self, *arguments: str | Path) -> str:
        return run(self.program, *self.options, *arguments)

    def attempt(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return attempt(self.program, *self.options, *arguments)

    def answers(self) -> bool:
        return takes_connections(self.folder / "socket") and self.attempt("info").returncode == 0

    def inspect(self, reference: str) -> dict[str, Any]:
        (shown,) = json.loads(self.run("image", "inspect", reference))
        return dict(shown)

    def files(self, reference: str) -> dict[str, str]:
        archive = self.folder / "saved.tar"
        self.run("save", "--output", archive, reference)
        return files_in_archive(archive)


def client_of_the_engine(engine: str) -> str:
    """Return the ``docker`` that was installed with `engine`; PATH may hold another before it."""
    beside = Path(engine).parent.parent / "bin" / "docker"
    return str(beside) if beside.exists() else require_tool("docker")


@contextmanager
def running_docker(settings: Mapping[str, Any]) -> Iterator[Docker]:
    """Run an engine with these settings of its ``daemon.json``."""
    require_root("dockerd")
    engine = require_tool("dockerd")
    if not any(CGROUPS.glob("*")):
        missing("dockerd needs cgroups, and none is mounted")
    with tempfile.TemporaryDirectory(prefix="entrepot-") as name:
        folder = Path(name)
        (folder / "daemon.json").write_text(json.dumps(settings))
        machine = Docker(folder, client_of_the_engine(engine))
        places = (
            *("--host", f"unix://{folder}/socket", "--pidfile", f"{folder}/pid"),
            *("--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec"),
            *("--config-file", f"{folder}/daemon.json"),
        )
        # The engine mounts its data root over itself and may leave that behind: not on our side.
        command = (require_tool("unshare"), "--mount", engine, *places, *OPTIONS)
        with daemon(*command, log=folder / "log", ready=machine.answers):
            yield machine


@pytest.fixture(scope="module")
def docker() -> Iterator[Docker]:
    """Run an engine of this module's own."""
    with running_docker({}) as machine:
        yield machine

"""The commands of the pages for operators are run in their order: install, upgrade, go back.

The upgrade is to a version that has a migration more, on a database that holds an image. What
cannot be run here is listed with the reason.
"""

from __future__ import annotations

import re
import shlex
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.clients.docs_shell import Shell, commands_of, shell, substituted, write_program
from tests.clients.journey_world import Machine, Operator
from tests.databases import ROOT, program_environment
from tests.entrepot import ADMIN, told
from tests.live import LiveRegistry
from tests.loaded import ENTREPOT, script_line
from tests.postgresql import free_port
from tests.tools import require_tool
from tests.versions import NEXT, THIS, next_version

pytestmark = [pytest.mark.client("skopeo"), pytest.mark.timeout(300)]

READY: Final = "curl http://127.0.0.1:5000/readyz"
"""The last command of the upgrade; what follows goes back."""

GO_BACK: Final = "git checkout OLD-VERSION"
"""The command after which the old version is installed again."""

NOT_RUN: Final = {
    "useradd": "makes a user of the machine; here all runs as the user of the tests",
    "python3 -m venv": "the environment of the tests stands in its place",
    ".venv/bin/pip install": "builds an environment out of the package index",
    "git": "needs a released version",
    "podman build": "needs the base image of its registry",
    "podman volume": "needs the image",
    "podman run": "needs the image",
    "podman cp": "needs the image",
    "docker compose": "needs the images, and docker",
}
"""Beginnings of commands, and why they are not run here."""

_PLACES: Final = re.compile(r"/(?=(?:opt/entrepot|etc/entrepot|etc/systemd|var/lib|var/backups)\b)")


@dataclass
class Machinery:
    """A machine with its own ``/opt``, ``/etc`` and ``/var``, and what systemd does for it."""

    folder: Path
    shell: Shell
    port: int
    services: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    met: set[str] = field(default_factory=set)
    printed: str = ""
    """What ``entrepot init`` showed."""

    @property
    def units(self) -> Path:
        """Return the folder that units are installed into."""
        return self.folder / "etc" / "systemd" / "system"

    @property
    def data(self) -> Path:
        return self.folder / "var" / "lib" / "entrepot"

    def meant(self, text: str) -> str:
        """Return a text with the places of this machine."""
        return _PLACES.sub(f"{self.folder}/", text)

    def read(self, page: str, *, until: str = "", after: str = "") -> None:
        """Run the commands of a page, or those between two."""
        commands = commands_of(page)
        first = commands.index(after) + 1 if after else 0
        last = commands.index(until) + 1 if until else len(commands)
        for command in commands[first:last]:
            self.type(command)

    def type(self, command: str) -> None:
        """Run a command, unless the list has it."""
        reasons = [each for each in NOT_RUN if re.match(rf"{re.escape(each)}\b", command)]
        self.met |= set(reasons)
        if reasons:
            return
        if command.startswith("systemctl "):
            self.systemctl(*shlex.split(command)[1:])
            return
        words = [
            ("runuser -u entrepot -- ", ""),
            (" -o entrepot", ""),
            (" -g entrepot", ""),
            ("you@example.com", ADMIN),
            ("http://127.0.0.1:5000", f"http://127.0.0.1:{self.port}"),
        ]
        said = self.shell.run(self.meant(substituted(command, words)))
        if "entrepot init" in command:
            self.printed = said
        if command.endswith("deploy/entrepot.toml /etc/entrepot/"):
            self.edit()

    def edit(self) -> None:
        """Edit the file of settings, as the page asks for."""
        path = self.folder / "etc" / "entrepot" / "entrepot.toml"
        text = self.meant(path.read_text())
        text = text.replace("https://registry.example.com", f"http://127.0.0.1:{self.port}")
        text = text.replace("127.0.0.1:9464", f"127.0.0.1:{free_port()}")
        path.write_text(f"{text}port = {self.port}\n")

    def systemctl(self, verb: str, *words: str) -> None:
        """Do what systemd does with the installed units: run their commands, and wait for them."""
        if verb == "daemon-reload":
            return
        (name,) = [word for word in words if word != "--now"]
        unit = self.units / (name if "." in name else f"{name}.service")
        text = self.meant(unit.read_text())
        if verb in ("restart", "stop"):
            self.stop(name)
        if verb in ("enable", "start", "restart") and unit.suffix == ".service":
            for words_of_unit in re.findall(r"^ExecStartPre=(.*)$", text, re.MULTILINE):
                self.shell.run(words_of_unit)
            (command,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
            if "Type=oneshot" in text:
                self.shell.run(command)
            else:
                assert "Type=notify" in text
                self.start(name, shlex.split(command))

    def start(self, name: str, command: list[str]) -> None:
        """Start a service; return once it says that it is ready."""
        path = self.folder / "notify"
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(str(path))
            manager.settimeout(60)
            self.services[name] = subprocess.Popen(
                command,
                env=program_environment() | {"NOTIFY_SOCKET": str(path)},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            assert manager.recv(100) == b"READY=1"

    def stop(self, name: str) -> None:
        """Stop a service, in the time that it has."""
        process = self.services.pop(name, None)
        if process is not None:
            process.terminate()
            assert process.wait(45) == 0

    def client(self, folder: Path) -> Machine:
        """Return somebody's machine on which skopeo is signed in by the first access key."""
        served = LiveRegistry("", self.services["entrepot"], self.data)
        machine = Machine(folder, Operator(self.data, self.port, self.printed, served))
        words = ("--docker", "--client", "skopeo", "--access-key-id")
        key, secret = (told(name, self.printed) for name in ("access key id", "secret access key"))
        url = f"http://127.0.0.1:{self.port}"
        machine.run(None, "login", url, *words, key, stdin=f"{secret}\n")
        return machine


def install_version(machine: Path, source: Path | None = None) -> None:
    """Install the command of this version, or of another, in the machine's ``/opt/entrepot``."""
    other = f'PYTHONPATH={source} exec {sys.executable} -m registry "$@"'
    program = script_line(ENTREPOT) if source is None else other
    write_program(machine / "opt" / "entrepot" / ".venv" / "bin", "entrepot", program)


def revision_of(database: Path) -> str:
    """Return the revision of a database."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return str(connection.execute("SELECT version_num FROM alembic_version").fetchone()[0])


@pytest.fixture
def machinery(workspace: Path) -> Iterator[Machinery]:
    """Return a machine with the sources in its ``/opt/entrepot``."""
    require_tool("curl")
    folder = workspace / "machine"
    sources = folder / "opt" / "entrepot"
    sources.mkdir(parents=True)
    (sources / "deploy").symlink_to(ROOT / "deploy")
    (sources / ".venv").mkdir()
    install_version(folder)
    with ExitStack() as stack:
        started = stack.enter_context(shell(workspace, program_environment()))
        port = free_port()
        made = Machinery(folder, started, port)
        made.units.mkdir(parents=True)
        made.shell.run(f"mkdir -p {folder}/var/lib {folder}/var/backups")
        yield made
        for name in list(made.services):
            made.stop(name)


def test_install_upgrade_and_go_back(machinery: Machinery, workspace: Path) -> None:
    database = machinery.data / "metadata.db"
    machinery.read("docs/how-to/deploy.md")
    assert (machinery.folder / "var/backups/entrepot/backup.json").exists()
    machine = machinery.client(workspace / "somebody")
    digest = machine.pushed(None, "web/old:1", "before the upgrade")

    machinery.read("docs/how-to/upgrade.md", until="git checkout VERSION")
    install_version(machinery.folder, next_version(workspace / "next"))
    machinery.read("docs/how-to/upgrade.md", after="git checkout VERSION", until=READY)
    assert revision_of(database) == NEXT
    assert machine.pull(None, "web/old@" + digest).returncode == 0
    machine.pushed(None, "web/new:1", "after the upgrade")
    config = machinery.folder / "etc" / "entrepot" / "entrepot.toml"
    checked = machinery.shell.run(f".venv/bin/entrepot fsck --config {config}")
    assert "0 violations, 0 orphans" in checked

    machinery.read("docs/how-to/upgrade.md", after=READY, until=GO_BACK)
    install_version(machinery.folder)
    machinery.read("docs/how-to/upgrade.md", after=GO_BACK)
    assert revision_of(database) == THIS
    assert machine.pull(None, "web/old@" + digest).returncode == 0
    assert machine.pull(None, "web/new:1").returncode != 0
    assert machinery.met == NOT_RUN.keys()

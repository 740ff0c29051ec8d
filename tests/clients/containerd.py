"""containerd: a private daemon and its ``ctr``."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.clients.archives import write_layout_archive
from tests.clients.images import Image
from tests.clients.programs import attempt, daemon, require_root, run, takes_connections
from tests.tools import require_tool

# Only content, images and snapshots are asked for; what runs containers would want more of the
# machine than a test may presume.
CONFIG = """\
version = 2
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]
[grpc]
address = "{folder}/socket"
"""


@dataclass(frozen=True)
class Containerd:
    """A containerd that answers on its own socket."""

    folder: Path

    def ctr(self, *arguments: str | Path) -> str:
        return run("ctr", "--address", self.folder / "socket", *arguments)

    def attempt(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return attempt("ctr", "--address", self.folder / "socket", *arguments)

    def answers(self) -> bool:
        listens = takes_connections(self.folder / "socket")
        return listens and self.attempt("version").returncode == 0


@contextlib.contextmanager
def running_containerd() -> Iterator[Containerd]:
    require_root("containerd")
    require_tool("ctr")
    with tempfile.TemporaryDirectory(prefix="entrepot-") as name:
        folder = Path(name)
        (folder / "config.toml").write_text(CONFIG.format(folder=folder))
        machine = Containerd(folder)
        command = [require_tool("containerd"), "--config", f"{folder}/config.toml"]
        with daemon(*command, log=folder / "log", ready=machine.answers):
            yield machine


def load(machine: Containerd, image: Image, workspace: Path, reference: str) -> None:
    write_layout_archive(image, workspace / "image.tar", reference)
    machine.ctr("images", "import", "--all-platforms", "--no-unpack", workspace / "image.tar")

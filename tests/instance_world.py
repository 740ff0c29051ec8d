"""A machine's folder for instances, who drives them, and a count of all that they may leave."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.program_driver import FIRST_INSTANCE_UID
from tests.program_world import ProgramMachine
from tests.tools import missing, require_tool

NOBODY: Final = 65_534
BOUNDS: Final = {"memory_mb": 64, "cpu_millis": 1000, "processes": 32}
_APPLETS: Final = """
    cat chmod dd df echo env false head hostname httpd id ip kill ls mkdir mknod mount nc ps pwd rm
    setsid sh sleep tail test touch true wc wget yes
"""


LONG_NAME: Final = "node".ljust(110, "-")
"""So that paths of sockets are longer than one can be (107 bytes, unix(7))."""


class Machine(ProgramMachine):
    """A folder, and one kind of driver."""

    group = "entrepot-"

    def __init__(self, runtime: str, top: Path) -> None:
        is_root = runtime == "runc"
        super().__init__(top, LONG_NAME, runtime, 0 if is_root else NOBODY)
        self.runtime = runtime
        self.layer = top / "layer"
        (self.layer / "bin").mkdir(parents=True)
        shutil.copy("/usr/bin/busybox", self.layer / "bin")
        for applet in _APPLETS.split():
            (self.layer / "bin" / applet).symlink_to("busybox")
        owner = FIRST_INSTANCE_UID if is_root else NOBODY
        for each in (self.layer, *self.layer.rglob("*")):
            os.chown(each, owner, owner, follow_symlinks=False)

    def spec(self, *command: str, **changes: object) -> dict[str, object]:
        """Return an instance to start: a line for the shell, or a program and its arguments."""
        argv = ("/bin/sh", "-c", *command) if len(command) == 1 else command
        given = {"id": self.new_id(), "command": argv, "environment": {}, "ports": []}
        bounds = [changes.pop(name, usual) for name, usual in BOUNDS.items()]
        return given | {"layers": [str(self.layer)], "bounds": bounds, "disk_mb": 16} | changes

    def inner_shim(self, instance_id: str) -> int:
        """Return the process that does the work."""
        return int(json.loads((self.folder(instance_id) / "state.json").read_text())["shim"])


@contextlib.contextmanager
def machine(runtime: str) -> Iterator[Machine]:
    """Make a machine's folder, and look that nothing is left of it when it goes."""
    if os.geteuid() != 0:
        missing("root, who makes the roots of instances and gives control groups")
    for program in ("bwrap" if runtime == "bubblewrap" else runtime, "ip", "busybox"):
        require_tool(program)
    top = Path(tempfile.mkdtemp(prefix="instances-"))
    top.chmod(0o755)
    made = Machine(runtime, top)
    with made.closing():
        yield made


def get(path: Path, request: bytes, *, ends: bool = False) -> bytes:
    """Return all that a port's socket answers, perhaps after it was told that no more comes."""
    opened = os.open(path.parent, os.O_PATH)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(f"/proc/self/fd/{opened}/{path.name}")
            connection.sendall(request)
            if ends:
                connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(65_536), b""))
    except ConnectionError:
        return b""
    finally:
        os.close(opened)

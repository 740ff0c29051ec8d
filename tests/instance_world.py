"""A machine's folder for instances, who drives them, and a count of all that they may leave."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import cloudcore
from cloudcore.compute.confined import KEEPERS_GROUP
from cloudcore.nodes import kept_process
from tests import instance_driver
from tests.instance_driver import FIRST_UID
from tests.tools import missing, require_tool

PYTHON: Final = "/usr/bin/python3"
"""The machine's own, which any user may run."""
NOBODY: Final = 65_534
BOUNDS: Final = {"memory_mb": 64, "cpu_millis": 1000, "processes": 32, "disk_mb": 16}
HIERARCHIES: Final = Path("/sys/fs/cgroup")
_APPLETS: Final = """
    cat chmod dd df echo env false head hostname httpd id ip kill ls mkdir mknod mount nc ps pwd rm
    setsid sh sleep tail test touch true wc wget yes
"""


def until(met: Callable[[], object], seconds: float = 30.0) -> None:
    """Return when something has come about, which another process does."""
    end = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < end, "it has not come about"
        time.sleep(0.01)


class Driving:
    """A process that drives instances."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def __call__(self, method: str, *arguments: object) -> Any:  # noqa: ANN401
        """Return what the driver's method returned; `Refused` if it failed as it may."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([method, arguments]).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise Died
        said = json.loads(line)
        if "failed" in said:
            raise Refused(said["failed"])
        return said["result"]

    def run(self, given: Mapping[str, object]) -> str:
        """Start an instance, let its program run, and return its id."""
        self("start", given)
        self("go", given["id"])
        return str(given["id"])

    def seen(self, instance_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self("seen")[instance_id]
        return found

    def ended(self, instance_id: str) -> dict[str, Any]:
        """Return what is seen of an instance when its program has ended."""
        until(lambda: self.seen(instance_id)["status"] == "stopped")
        return self.seen(instance_id)

    def says(self, instance_id: str, text: str) -> str:
        """Return an instance's output when some text is in it."""
        until(lambda: text in self("logs", instance_id, 10_000))
        return str(self("logs", instance_id, 10_000))


class Died(Exception):
    """The driving process is no more."""


class Refused(Exception):
    """A driver could not, and said why."""


@dataclass(frozen=True)
class Left:
    """What there is of instances on this machine."""

    processes: frozenset[int]
    groups: frozenset[str]
    mounts: frozenset[str]
    loops: frozenset[str]
    files: frozenset[str]


LONG_NAME: Final = "node".ljust(110, "-")
"""So that paths of sockets are longer than one can be (107 bytes, unix(7))."""


class Machine:
    """A folder, and one kind of driver."""

    def __init__(self, runtime: str, top: Path) -> None:
        self.runtime = runtime
        self.top = top
        self.base = top / LONG_NAME
        self.layer = top / "layer"
        self._groups: list[Path] = []
        self._ids: set[str] = set()
        is_root = runtime == "runc"
        self.uid = 0 if is_root else NOBODY
        shutil.copytree(Path(cloudcore.__file__).parent, top / "lib/cloudcore")
        shutil.copy(instance_driver.__file__, top / "lib")
        (self.layer / "bin").mkdir(parents=True)
        shutil.copy("/usr/bin/busybox", self.layer / "bin")
        for applet in _APPLETS.split():
            (self.layer / "bin" / applet).symlink_to("busybox")
        owner = FIRST_UID if is_root else NOBODY
        for each in (self.layer, *self.layer.rglob("*")):
            os.chown(each, owner, owner, follow_symlinks=False)
        self.base.mkdir()
        os.chown(self.base, self.uid, self.uid)
        if not is_root:
            self._delegate()

    def _delegate(self) -> None:
        """Make groups in which another user may make groups."""
        for controller in ("memory", "pids", "cpu"):
            group = HIERARCHIES / controller / f"given-{self.top.name}"
            if not group.parent.is_dir():
                missing(f"the controller {controller} of version 1")
            group.mkdir()
            for each in (group, group / "cgroup.procs", group / "tasks"):
                os.chown(each, NOBODY, NOBODY)
            self._groups.append(group)

    def close(self) -> None:
        for group in self._groups:
            for each in (group / KEEPERS_GROUP, group):
                if each.exists():
                    until(partial(is_empty, each))
                    each.rmdir()
        shutil.rmtree(self.top)

    @contextlib.contextmanager
    def driving(
        self,
        place: str = "",
        *,
        driver: str = "",
        is_given: bool = True,
        env: Mapping[str, str] | None = None,
    ) -> Iterator[Driving]:
        """Start who drives, who may die at a place, and may not be given a control group."""
        options: dict[str, Any] = {}
        if self.runtime != "runc":
            options |= {"user": NOBODY, "group": NOBODY, "extra_groups": ()}
        program = str(self.top / "lib/instance_driver.py")
        with subprocess.Popen(
            (PYTHON, program, driver or self.runtime, str(self.base), *place.split()),
            env={"PYTHONPATH": str(self.top / "lib"), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
            | dict(env or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            umask=0o077,  # as the unit of systemd has it
            preexec_fn=self._enter if is_given else None,  # noqa: PLW1509 - it opens and writes files alone
            **options,
        ) as process:
            try:
                yield Driving(process)
            finally:
                process.kill()

    def _enter(self) -> None:
        for group in self._groups:
            (group / "cgroup.procs").write_text("0")

    def spec(self, *command: str, **changes: object) -> dict[str, object]:
        """Return an instance to start: a line for the shell, or a program and its arguments."""
        argv = ("/bin/sh", "-c", *command) if len(command) == 1 else command
        instance_id = str(uuid.uuid4())
        self._ids.add(instance_id)
        given = {"id": instance_id, "command": argv, "environment": {}, "ports": []}
        bounds = BOUNDS | {name: changes.pop(name) for name in BOUNDS if name in changes}
        return given | {"layers": [str(self.layer)], "bounds": bounds} | changes

    def folder(self, instance_id: str) -> Path:
        return self.base / instance_id

    def keeper(self, instance_id: str) -> int:
        """Return the process that the service knows."""
        found = kept_process.find(self.folder(instance_id))
        assert found is not None
        return found.pid

    def inner_keeper(self, instance_id: str) -> int:
        """Return the process that does the work."""
        return int(json.loads((self.folder(instance_id) / "state.json").read_text())["keeper"])

    def processes(self, instance_id: str) -> set[int]:
        """Return those of an instance itself, by the groups that bound it."""
        return {
            int(pid)
            for group in HIERARCHIES.glob(f"pids/**/entrepot-{instance_id}")
            for pid in (group / "cgroup.procs").read_text().split()
        }

    def left(self) -> Left:
        """Count what there is."""
        base = str(self.base)
        return Left(
            frozenset(processes_in(base)),
            frozenset(
                str(each) for each in HIERARCHIES.glob("**/entrepot-*") if self._is_ours(each)
            ),
            frozenset(line for line in lines("/proc/self/mountinfo") if base in line),
            frozenset(
                each.parent.parent.name
                for each in Path("/sys/block").glob("loop*/loop/backing_file")
                if each.read_text().startswith(base)
            ),
            frozenset(each.name for each in self.base.iterdir() if each.name != ".trial.lock"),
        )

    def _is_ours(self, group: Path) -> bool:
        if group.name == KEEPERS_GROUP:
            return False  # one for all, which stays
        is_given = any(each in group.parents for each in self._groups)
        return is_given or group.name.removeprefix("entrepot-") in self._ids


def is_empty(group: Path) -> bool:
    return not (group / "cgroup.procs").read_text()


def lines(path: str) -> Sequence[str]:
    return Path(path).read_text().splitlines()


def processes_in(base: str) -> Iterator[int]:
    """Return the processes that work in a folder, or are below one that does."""
    parents: dict[int, int] = {}
    working = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(process.name)] = int(
                (process / "stat").read_bytes().rpartition(b")")[2].split()[1]
            )
            if str((process / "cwd").readlink()).startswith(base):
                working.add(int(process.name))
        except OSError:
            continue
    for pid in parents:
        above: int | None = pid
        while above:
            if above in working:
                yield pid
                break
            above = parents.get(above)


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
    try:
        yield made
        with made.driving() as driving:
            for instance_id in driving("seen"):
                driving("remove", instance_id)
        end = time.monotonic() + 10  # the kernel takes away what was killed when it comes to it
        while (left := made.left()) != Left(*[frozenset()] * 5):
            assert time.monotonic() < end, left
            time.sleep(0.1)
    finally:
        made.close()


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

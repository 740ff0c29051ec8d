"""A folder of a machine for programs, who drives them, and a count of what they leave."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import cloudcore
from cloudcore.nodes import detached_process
from cloudcore.nodes.control_groups import SHIMS
from tests import program_driver
from tests.tools import missing
from tests.waiting import until

PYTHON: Final = "/usr/bin/python3"
"""The machine's own, which any user may run."""
HIERARCHIES: Final = Path("/sys/fs/cgroup")


class Driving:
    """A process that drives programs."""

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

    def seen(self, program_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self("seen")[program_id]
        return found

    def ended(self, program_id: str) -> dict[str, Any]:
        """Return what is seen of a program when it has ended."""
        until(lambda: self.seen(program_id)["status"] == "stopped")
        return self.seen(program_id)

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
    """What there is of programs on this machine."""

    processes: frozenset[int] = frozenset()
    groups: frozenset[str] = frozenset()
    mounts: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
    """Of networks."""
    loops: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()


class ProgramMachine:
    """A folder for programs, of a service with root or as another user."""

    group: ClassVar[str]
    """What the names of their control groups begin with."""

    def __init__(self, top: Path, folder: str, kind: str, uid: int, port: int = 0) -> None:
        """Make the folder, and groups in which that user may make groups."""
        self.top = top
        self.base = top / folder
        self.kind = kind
        self.uid = uid
        self.port = port
        self.ids: set[str] = set()
        self._groups: list[Path] = []
        shutil.copytree(Path(cloudcore.__file__).parent, top / "lib/cloudcore")
        shutil.copy(program_driver.__file__, top / "lib")
        self.base.mkdir(mode=0o700)
        os.chown(self.base, uid, uid)
        for controller in ("memory", "pids", "cpu") if uid else ():
            group = HIERARCHIES / controller / f"given-{self.top.name}"
            if not group.parent.is_dir():
                missing(f"the controller {controller} of version 1")
            group.mkdir()
            for each in (group, group / "cgroup.procs", group / "tasks"):
                os.chown(each, uid, uid)
            self._groups.append(group)

    def close(self) -> None:
        for group in self._groups:
            for each in (group / SHIMS, group):
                if each.exists():
                    until(partial(_is_empty, each))
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
        if self.uid:
            options |= {"user": self.uid, "group": self.uid, "extra_groups": ()}
        program = (PYTHON, str(self.top / "lib/program_driver.py"), driver or self.kind)
        with subprocess.Popen(
            (*program, str(self.base), str(self.port), *place.split()),
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

    def new_id(self) -> str:
        """Return the id of another program of this machine."""
        made = str(uuid.uuid4())
        self.ids.add(made)
        return made

    def folder(self, program_id: str) -> Path:
        return self.base / program_id

    def shim(self, program_id: str) -> int:
        """Return the process that the service knows."""
        found = detached_process.find(self.folder(program_id))
        assert found is not None
        return found.pid

    def processes(self, program_id: str) -> set[int]:
        """Return those of a program itself, by the groups that bound it."""
        found: set[int] = set()
        for group in groups_named(f"{self.group}{program_id}", "pids"):
            with contextlib.suppress(OSError):
                found.update(map(int, (group / "cgroup.procs").read_text().split()))
        return found

    def first_process(self, program_id: str) -> int:
        """Return the one that started the others: numbers begin anew, so the least may be later."""
        found = self.processes(program_id)
        return next(each for each in found if _parent_of(each) not in found)

    def last_process(self, program_id: str) -> int:
        """Return one that has started no other."""
        found = self.processes(program_id)
        return next(iter(found - {_parent_of(each) for each in found}))

    def left(self) -> Left:
        """Count what there is."""
        base = str(self.base)
        working = frozenset(_processes_in(base))
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        return Left(
            working,
            frozenset(
                str(group)
                for folder, names, _ in os.walk(HIERARCHIES)  # others' come and go meanwhile
                for group in (Path(folder, each) for each in names)
                if group.name.startswith(self.group) and self._is_ours(group)
            ),
            frozenset(line for line in mounts if base in line),
            frozenset(_namespaces(working)),
            frozenset(_loop_devices(base)),
            frozenset(each.name for each in self.base.iterdir() if each.name != ".trial.lock"),
        )

    def _is_ours(self, group: Path) -> bool:
        if group.name == SHIMS:
            return False  # one for all, which stays
        is_given = any(each in group.parents for each in self._groups)
        return is_given or group.name.removeprefix(self.group) in self.ids

    @contextlib.contextmanager
    def closing(self, *options: object) -> Iterator[None]:
        """Remove all programs at the end, with these options, and look that nothing is left."""
        try:
            yield
            with self.driving() as driving:
                for program_id in driving("seen"):
                    driving("remove", program_id, *options)
            # The kernel takes away what was killed when it comes to it.
            until(lambda: self.left() == Left(), self.left, seconds=10, pause=0.1)
        finally:
            self.close()


def groups_named(name: str, controller: str = "") -> list[Path]:
    """Return the control groups of that name; those of others, which vanish, would end a glob."""
    walked = os.walk(HIERARCHIES / controller)
    return [Path(folder, name) for folder, groups, _ in walked if name in groups]


def _is_empty(group: Path) -> bool:
    return not (group / "cgroup.procs").read_text()


def _loop_devices(base: str) -> Iterator[str]:
    """Yield those whose files lie in ``base``."""
    for each in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):  # others' come and go meanwhile
            if each.read_text().startswith(base):
                yield each.parent.parent.name


def _namespaces(processes: Iterable[int]) -> Iterator[str]:
    for pid in processes:
        with contextlib.suppress(OSError):
            yield str(Path(f"/proc/{pid}/ns/net").readlink())


def _parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def _processes_in(base: str) -> Sequence[int]:
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
    found = []
    for pid in parents:
        above: int | None = pid
        while above and above not in working:
            above = parents.get(above)
        if above:
            found.append(pid)
    return found

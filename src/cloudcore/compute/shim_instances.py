"""Run instances under shims: the common part of the drivers `runc` and `bubblewrap`.

A `Confinement` is the part that differs: how a program is confined and its resources limited.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Protocol, TypeVar

from cloudcore.compute.driver import MOST_LOG_BYTES, InstanceSpec, InstanceState, SandboxFailed
from cloudcore.compute.images import ImageConfig, ImageRoot, ImageUser
from cloudcore.compute.shim.namespaces import INSTANCE_FD
from cloudcore.nodes import control_groups, detached_process
from cloudcore.nodes.control_groups import MIB, Bounds
from cloudcore.nodes.detached_process import DetachedProcess, LaunchFailed
from cloudcore.nodes.node import DriverUnusable
from cloudcore.nodes.output import NEWER, OLDER, tail
from cloudcore.nodes.shim import ORDER, STATE, NoAnswer, ask
from cloudcore.nodes.shim_driver import (
    PACKAGES,
    TO_END,
    ProgramThreads,
    kill,
    living,
    read_json,
    shim_command,
    stop,
    write_file,
)

DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
GROUP_PREFIX: Final = "entrepot-"
"""The prefix of the names of control groups."""
SHM_MB: Final = 64
NO_PROC_FILES: Final = ("keys", "kcore", "latency_stats", "timer_list", "sched_debug", "kmsg")
"""Files in `/proc` with information about the machine: instances see them empty."""
NO_PROC_FOLDERS: Final = ("acpi", "asound", "scsi", "pressure")
READ_ONLY_PROC: Final = ("bus", "fs", "irq", "sys", "sysrq-trigger")


def argv_of(spec: InstanceSpec) -> Sequence[str]:
    """Return the command line of an instance's program.

    Raise `SandboxFailed` if neither its pool nor its image names a program.
    """
    argv = list(spec.command) or [*spec.root.config.entrypoint, *spec.root.config.cmd]
    if not argv:
        raise SandboxFailed("the image names no program: give the pool a command")
    return argv


def environment_of(spec: InstanceSpec) -> dict[str, str]:
    """Return the environment of an instance: the pool's variables override the image's."""
    image = dict(each.partition("=")[::2] for each in spec.root.config.env)
    return {"PATH": DEFAULT_PATH, "HOSTNAME": spec.hostname} | image | dict(spec.environment)


def root_of(spec: InstanceSpec, at: str, owner: int | None) -> dict[str, object]:
    """Describe an instance's root for its shim (`shim.root.Root`)."""
    return {
        "layers": [str(layer.absolute()) for layer in spec.root.layers],
        "at": at,
        "disk_bytes": spec.disk_mb * MIB,
        "owner": owner,
        "hosts": f"127.0.0.1 localhost {spec.hostname}\n::1 localhost\n",
    }


_THREADS: Final = ThreadPoolExecutor(24, "instances")
"""Separate threads, as stopping an instance blocks one for up to its grace."""
_SHIM: Final = "cloudcore.compute.shim.program"
_TO_PREPARE: Final = 60.0
"""How long a shim may take to prepare its instance, in seconds."""
_TRIAL: Final = ".trial"
"""The folder of the instance that `check` runs."""
T = TypeVar("T")


class Confinement(Protocol):
    """How a driver confines programs and limits their resources."""

    @property
    def name(self) -> str:
        """Return the driver's name, as the operator writes it in the setting."""

    @property
    def namespaces(self) -> Sequence[str]:
        """Return the options of `unshare` for the additional namespaces of the shim."""

    @property
    def takes_links(self) -> bool:
        """Return True if the machine can put links into an instance's network namespace."""

    def require(self) -> None:
        """Raise `DriverUnusable` if something is missing; make no trial run."""

    def order(self, spec: InstanceSpec, folder: Path) -> Mapping[str, object]:
        """Write the runtime's files into a folder; return its part of the shim's ``order.json``."""

    def groups(self, instance_id: str) -> Sequence[Path]:
        """Return the control groups that an instance may have left."""


class ShimInstances:
    """Runs instances under shims. Every method may be repeated after a crash at any point.

    An instance has a folder and a process, its shim. Both outlive the service, so an instance keeps
    running while the service restarts, and is started at most once.
    """

    def __init__(self, base: Path, confinement: Confinement) -> None:
        self._base = base.absolute()
        self._confinement = confinement
        self._programs = ProgramThreads(_THREADS)

    def check(self) -> None:
        """Check that instances can run here, by running a trial program in one.

        Raise `DriverUnusable`, with a one-line reason, if the trial fails or a limit cannot be
        enforced.
        """
        self._confinement.require()
        config = ImageConfig(("true",), (), (), "/", ImageUser(0, 0))
        root = ImageRoot("", (Path("/usr"),), config)  # has `bin` and `lib` as a root has
        bounds = Bounds(memory_mb=64, cpu_millis=1000, processes=16)
        spec = InstanceSpec(_TRIAL, "trial", root, (), {}, bounds, 8, (), has_network=False)
        self._base.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._base / f"{_TRIAL}.lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._remove(_TRIAL)
            try:
                self._start(spec)
                self._go(_TRIAL)
                self._wait(_TRIAL)
                seen = self._seen_one(_TRIAL)
                said = seen.problem or self.logs(_TRIAL, 500).decode(errors="replace").strip()
            except SandboxFailed as failed:
                seen, said = InstanceState("stopped"), str(failed)
            self._remove(_TRIAL)
        if seen.exit_code != 0:
            driver = self._confinement.name
            raise DriverUnusable(f"compute_driver {driver} cannot run a program here: {said}")

    async def start(self, spec: InstanceSpec) -> Path | None:
        """Make the folder, the namespaces and the shim of an instance; its program waits for `go`.

        Return the network namespace that links can be put into, or None if this driver supports no
        links. An instance that is starting or running stays as it is. An instance that has ended
        starts again with an empty disk; its output is retained.

        Raise `SandboxFailed` if the instance cannot be created.
        """
        return await self._alone(spec.id, lambda: self._start(spec))

    async def go(self, instance_id: str) -> None:
        """Start the program of an instance; do nothing if it already runs.

        Raise `SandboxFailed` if there is no such instance.
        """
        await self._alone(instance_id, lambda: self._go(instance_id))

    async def seen(self) -> Mapping[str, InstanceState]:
        """Map id to state, for each instance that has a folder on this machine."""
        return await self._programs.run(self._seen)

    async def stop(self, instance_id: str, grace_seconds: float) -> None:
        """Stop an instance: SIGTERM to its program, and after the grace SIGKILL to all processes.

        Its folder stays, with its output and exit code. Do nothing if the instance has already
        ended.
        """
        await self._alone(instance_id, lambda: self._stop(instance_id, grace_seconds))

    async def remove(self, instance_id: str) -> None:
        """Kill an instance and delete everything it has here: processes, namespaces and files."""
        await self._alone(instance_id, lambda: self._remove(instance_id))

    def logs(self, instance_id: str, tail_bytes: int) -> bytes:
        """Return the last `tail_bytes` of an instance's output, at most `MOST_LOG_BYTES`.

        The output has standard output and standard error in one. It may be empty.
        """
        return tail(self.folder(instance_id), min(tail_bytes, MOST_LOG_BYTES))

    def folder(self, instance_id: str) -> Path:
        """Return an instance's folder, which has `ports/<port>` and `credentials.json`."""
        return self._base / instance_id

    async def _alone(self, instance_id: str, act: Callable[[], T]) -> T:
        """Run a call in a thread, while no other call about this instance runs."""
        try:
            return await self._programs.alone(instance_id, act)
        except SandboxFailed as failed:
            raise SandboxFailed(self._told(str(failed))) from failed

    def _told(self, words: str) -> str:
        """Remove paths of this machine from an error, so that the instance's owner may see it."""
        own = f"(?:{re.escape(str(self._base.parent))}|/sys/fs/cgroup)"
        return re.sub(rf"\[Errno [0-9]+\] |(?::? ['\"]?|['\"]){own}/[^\s:,'\"]*['\"]?", "", words)

    def _start(self, spec: InstanceSpec) -> Path | None:
        folder = self.folder(spec.id)
        try:
            process = living(folder)
            if process is None:
                self._clear(spec.id)
                self._write(spec, folder)
                env = {"PATH": os.environ.get("PATH", os.defpath)}
                argv = shim_command(_SHIM, self._confinement.namespaces)
                process = detached_process.start(folder, argv, env=env)
            _ask(folder, process, "ready", _TO_PREPARE)
        except (OSError, LaunchFailed) as error:
            raise SandboxFailed(str(error)) from error
        state = read_json(folder / STATE)
        if state.get("problem"):
            raise SandboxFailed(state["problem"])
        if state.get("status", "starting") == "starting" and not process.is_alive:
            raise SandboxFailed("its shim ended before it was ready")
        if not self._confinement.takes_links:
            return None
        return Path(f"/proc/{state['shim']}/fd/{INSTANCE_FD}")

    def _write(self, spec: InstanceSpec, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        order = {"ports": list(spec.ports), **self._confinement.order(spec, folder)}
        write_file(folder / ORDER, json.dumps(order).encode())

    def _go(self, instance_id: str) -> None:
        folder = self.folder(instance_id)
        process = living(folder)
        if process is not None:
            _ask(folder, process, "go", _TO_PREPARE)
        elif "status" not in read_json(folder / STATE):
            raise SandboxFailed(f"there is no instance {instance_id}")

    def _seen(self) -> Mapping[str, InstanceState]:
        try:
            found = [each.name for each in self._base.iterdir() if not each.name.startswith(".")]
        except FileNotFoundError:
            return {}
        seen = {each: self._seen_one(each) for each in found}
        return {
            name: each._replace(problem=self._told(each.problem)) for name, each in seen.items()
        }

    def _seen_one(self, instance_id: str) -> InstanceState:
        folder = self.folder(instance_id)
        is_alive = living(folder) is not None
        state = read_json(folder / STATE)
        if not is_alive:
            state["status"] = "stopped"
        known = ("exit_code", "started_at", "problem")
        told = {name: state[name] for name in known if name in state}
        return InstanceState(state.get("status", "starting"), **told)

    def _stop(self, instance_id: str, grace_seconds: float) -> None:
        stop(self.folder(instance_id), grace_seconds)
        self._end(instance_id)

    def _wait(self, instance_id: str) -> None:
        process = detached_process.find(self.folder(instance_id))
        if process is not None:
            process.wait(_TO_PREPARE)

    def _remove(self, instance_id: str) -> None:
        self._end(instance_id)
        folder, end = self.folder(instance_id), time.monotonic() + TO_END
        while folder.exists():  # a shim that this process does not know may still write its state
            shutil.rmtree(folder, ignore_errors=True)
            if time.monotonic() > end:
                raise SandboxFailed(f"the folder of {instance_id} cannot be removed")

    def _end(self, instance_id: str) -> None:
        """Kill an instance, and remove its control groups; raise `SandboxFailed` if that fails."""
        if not kill(self.folder(instance_id)):
            raise SandboxFailed(f"the shim of {instance_id} does not end")
        try:
            control_groups.remove(self._confinement.groups(instance_id))
        except OSError as error:
            raise SandboxFailed(f"processes of {instance_id} do not end: {error}") from error

    def _clear(self, instance_id: str) -> None:
        """Delete an instance's files except its output, credentials and identity."""
        self._end(instance_id)
        kept_names = {NEWER, OLDER, "instance.json", "credentials.json", "process.lock"}
        folder = self.folder(instance_id)
        for each in folder.iterdir() if folder.exists() else ():
            if each.name in kept_names:
                continue
            if each.is_dir() and not each.is_symlink():
                shutil.rmtree(each)
            else:
                each.unlink()


def _ask(folder: Path, process: DetachedProcess, line: str, seconds: float) -> None:
    """Send a line to a shim, and wait until the shim answers.

    Raise `SandboxFailed` if the shim ends, or does not answer in time.
    """
    try:
        ask(folder, process, line, seconds)
    except NoAnswer as error:
        raise SandboxFailed(str(error)) from error


def root_folder(*used: Path) -> str:
    """Return a folder over which a shim mounts an instance's root: `/mnt`, `/media` or `/srv`.

    The folder contains neither the paths `used` nor Python. All users may enter its parents, as an
    instance runs as a user id that does not exist on this machine.

    Raise `SandboxFailed` if there is no such folder.
    """
    needed = (*used, PACKAGES, Path(sys.prefix), Path(sys.base_prefix))
    for each in (Path("/mnt"), Path("/media"), Path("/srv")):
        if each.is_dir() and not any(path.is_relative_to(each) for path in needed):
            return str(each)
    raise SandboxFailed("there is neither /mnt nor /media nor /srv to put the root of instances at")

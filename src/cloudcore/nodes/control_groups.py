"""Control groups: limits on the memory, processors and processes of programs (cgroups(7)).

Version 1 has one hierarchy for each controller, version 2 one for all; a machine has either or
both.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

CONTROLLERS: Final = ("memory", "pids", "cpu")
SHIMS: Final = "entrepot-shims"
"""The group of all shims of a machine; it remains when there are no shims."""
MIB: Final = 1024 * 1024
PERIOD_US: Final = 100_000
"""Microseconds of the period in which CPU time is counted."""
_SECONDS_TO_END: Final = 30.0


class Bounds(NamedTuple):
    """The limits of a group, which the kernel enforces."""

    memory_mb: int
    """MiB (1,048,576 bytes), including the kernel's own memory for the group."""
    cpu_millis: int
    """Thousandths of a processor."""
    processes: int
    """Threads included."""


class Hierarchy(NamedTuple):
    """A mounted cgroup hierarchy, and this process's group in it."""

    version: int
    mount: Path
    own: Path
    """The group of this process."""
    named: frozenset[str] = frozenset()
    """The controllers of a hierarchy of version 1."""

    @property
    def controllers(self) -> frozenset[str]:
        """Return the controllers of this hierarchy."""
        if self.version == 1:
            return self.named
        return frozenset((self.own / "cgroup.controllers").read_text("ascii").split())


class GroupsMissing(Exception):
    """No control group can be made here; the message tells the operator what to do, in one line."""


def shares(cpu_millis: int) -> int:
    """Return a group's CPU weight: a tenth of `cpu_millis`, so that the service comes first."""
    return max(2, cpu_millis // 10)


def hierarchies() -> Sequence[Hierarchy]:
    """Return the hierarchies that are mounted here."""
    groups, mounts = Path("/proc/self/cgroup"), Path("/proc/self/mountinfo")
    return [*hierarchies_of(groups.read_text("utf-8"), mounts.read_text("utf-8"))]


def hierarchies_of(groups: str, mounts: str) -> Iterator[Hierarchy]:
    """Yield the hierarchies in a process's groups (cgroups(7)) and mounts (proc_pid_mountinfo(5)).

    `groups` and `mounts` are the texts of the process's ``cgroup`` and ``mountinfo`` files.
    """
    own = {}
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), path))
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        root, mount = before.split()[3:5]
        kind, _, options = after.split()[:3]
        names = frozenset(options.split(",")) & own.keys()
        if kind == "cgroup" and names:
            yield Hierarchy(1, Path(mount), _inside(mount, root, own[min(names)]), names)
        elif kind == "cgroup2":
            yield Hierarchy(2, Path(mount), _inside(mount, root, own[""]))


def _inside(mount: str, root: str, path: str) -> Path:
    relative = path.removeprefix(root) if root != "/" else path
    return Path(mount, relative.lstrip("/"))


def delegated() -> Mapping[str, tuple[int, Path]]:
    """Map each controller to the (version, group) below which this process may make groups.

    That is the process's own group, or in version 2 its parent, as a group with processes may not
    have child groups there.

    Raise `GroupsMissing` if a controller has no such group.
    """
    found: dict[str, tuple[int, Path]] = {}
    for each in hierarchies():
        parent = each.own if each.version == 1 else each.own.parent
        found |= dict.fromkeys(each.controllers & {*CONTROLLERS}, (each.version, parent))
    missing = {*CONTROLLERS} - found.keys()
    if missing:
        raise GroupsMissing(f"the machine has no control group of {', '.join(sorted(missing))}")
    probe = f"entrepot-{time.monotonic_ns()}"
    for version, parent in {*found.values()}:
        try:
            if version == 2:
                wanted = " ".join(f"+{name}" for name in CONTROLLERS)
                (parent / "cgroup.subtree_control").write_text(wanted, "ascii")
            (parent / probe).mkdir()
            (parent / probe).rmdir()
        except OSError as error:
            raise GroupsMissing(
                f"the service may not make control groups in {parent} ({error.strerror}): its unit"
                " needs Delegate=yes and DelegateSubgroup=service"
            ) from None
    return found


def make(parents: Mapping[str, tuple[int, Path]], name: str, bounds: Bounds) -> list[Path]:
    """Make a group of this name, with its limits, below each parent; return the groups."""
    groups = []
    for controller, (version, parent) in parents.items():
        group = parent / name
        group.mkdir(exist_ok=True)
        for file, value in _bounds(controller, version, bounds):
            if file != "memory.memsw.limit_in_bytes" or (group / file).exists():
                (group / file).write_text(str(value), "ascii")
        groups.append(group)
    return list(dict.fromkeys(groups))


def existing(name: str) -> Sequence[Path]:
    """Return the paths of the groups called `name`, whether or not the groups exist.

    Return no paths if this process may make no groups.
    """
    try:
        return [parent / name for _, parent in delegated().values()]
    except GroupsMissing:
        return ()


def make_shim_group(version: int, parent: Path) -> Path:
    """Make the group of all shims, with half of the CPU weight of its sibling groups."""
    group = parent / SHIMS
    group.mkdir(exist_ok=True)
    file, weight = ("cpu.shares", 512) if version == 1 else ("cpu.weight", 50)
    (group / file).write_text(str(weight), "ascii")
    return group


def _bounds(controller: str, version: int, bounds: Bounds) -> list[tuple[str, object]]:
    memory = bounds.memory_mb * MIB
    quota = bounds.cpu_millis * PERIOD_US // 1000
    if controller == "pids":
        return [("pids.max", bounds.processes)]
    if version == 1 and controller == "memory":
        return [("memory.limit_in_bytes", memory), ("memory.memsw.limit_in_bytes", memory)]
    if version == 1:
        return [
            ("cpu.cfs_period_us", PERIOD_US),
            ("cpu.cfs_quota_us", quota),
            ("cpu.shares", shares(bounds.cpu_millis)),
        ]
    if controller == "memory":
        return [("memory.max", memory), ("memory.swap.max", 0)]
    return [("cpu.max", f"{quota} {PERIOD_US}"), ("cpu.weight", max(1, bounds.cpu_millis // 100))]


def remove(groups: Iterable[Path]) -> None:
    """Kill the processes in groups and remove the groups; raise `OSError` if that takes over 30 s.

    This works even if the shim of these processes is unknown because the shim's folder was lost.
    """
    end = time.monotonic() + _SECONDS_TO_END
    for group in groups:
        while True:
            try:
                group.rmdir()
            except FileNotFoundError:
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                _kill_all(group)
                time.sleep(0.01)


def _kill_all(group: Path) -> None:
    """Kill the processes of a group through pid descriptors, as process ids may be reused."""
    for pid in _processes(group):
        with suppress(OSError):  # the process has ended, or is not visible here
            descriptor = os.pidfd_open(int(pid))
            try:
                if pid in _processes(group):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            finally:
                os.close(descriptor)


def _processes(group: Path) -> Sequence[str]:
    with suppress(OSError):  # the group is gone, or ends
        return (group / "cgroup.procs").read_text("ascii").split()
    return ()

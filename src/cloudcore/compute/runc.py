"""The driver `runc`: instances as containers, in a range of otherwise unused user ids.

It needs root. The shim runs `runc`, so an instance's mounts are only in the shim's mount namespace.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from cloudcore.compute.driver import InstanceSpec, SandboxFailed
from cloudcore.compute.images import IDS
from cloudcore.compute.shim.namespaces import USERS_FD, Users
from cloudcore.compute.shim.program import PID_FILE
from cloudcore.compute.shim_instances import (
    GROUP_PREFIX,
    NO_PROC_FILES,
    NO_PROC_FOLDERS,
    READ_ONLY_PROC,
    SHM_MB,
    ShimInstances,
    argv_of,
    environment_of,
    root_folder,
    root_of,
)
from cloudcore.nodes import seccomp
from cloudcore.nodes.control_groups import MIB, PERIOD_US, hierarchies, make_shim_group, shares
from cloudcore.nodes.node import DriverUnusable
from cloudcore.nodes.shim import OOM_SCORE
from cloudcore.nodes.shim_driver import require_programs, write_file

_PROGRAMS: Final = {
    "runc": "runc",
    "ip": "iproute2",
    "mkfs.ext4": "e2fsprogs",
    "unshare": "util-linux",
}
"""The programs, and the Debian packages that have them."""


def runc_driver(folder: Path, first_uid: int) -> ShimInstances:
    """Return the driver, which stores its files in a folder of this machine.

    The user and group ids from 0 up to `IDS` in each instance are mapped to the machine's ids from
    `first_uid` on.
    """
    return ShimInstances(folder, _Runc(first_uid))


class _Runc:
    name = "runc"
    namespaces: Sequence[str] = ()
    takes_links = True

    def __init__(self, first_uid: int) -> None:
        self._first_uid = first_uid

    def require(self) -> None:
        """Raise `DriverUnusable` if the service does not run as root, or a program is missing."""
        if os.geteuid() != 0:
            raise DriverUnusable("compute_driver runc needs root: without it, set bubblewrap")
        require_programs("compute_driver runc", _PROGRAMS)

    def order(self, spec: InstanceSpec, folder: Path) -> Mapping[str, object]:
        """Write ``config.json`` for runc; return runc's part of the shim's ``order.json``."""
        at, first = root_folder(folder, *spec.root.layers), self._first_uid
        write_file(folder / "config.json", json.dumps(self._configuration(spec, at)).encode())
        return {
            "root": root_of(spec, at, owner=first),
            "users": Users(first + crc32(spec.id.encode()) % IDS, first, IDS),
            "runtime": "runc",
            "launch": [
                *("runc", "--root", "runc", "--log", os.devnull),  # errors as plain text
                *("run", "--detach", "--pid-file", PID_FILE, spec.id),
            ],
            "groups": [],
            "shims": str(_shims()),
        }

    def groups(self, instance_id: str) -> Sequence[Path]:
        """Return the control groups that runc makes: one in each hierarchy."""
        return [each.mount / f"{GROUP_PREFIX}{instance_id}" for each in hierarchies()]

    def _configuration(self, spec: InstanceSpec, at: str) -> dict[str, Any]:
        """Return the container's configuration (runtime-spec, "config.json")."""
        user = spec.root.config.user
        ids = [{"containerID": 0, "hostID": self._first_uid, "size": IDS}]
        none: list[str] = []
        sets = ("bounding", "effective", "inheritable", "permitted", "ambient")
        namespaces = [{"type": each} for each in ("pid", "ipc", "uts", "mount", "cgroup")]
        return {
            "ociVersion": "1.0.2",
            "process": {
                "terminal": False,
                "user": {"uid": user.uid, "gid": user.gid},
                "args": argv_of(spec),
                "env": [f"{name}={value}" for name, value in environment_of(spec).items()],
                "cwd": spec.root.config.working_dir or "/",
                "capabilities": dict.fromkeys(sets, none),
                "noNewPrivileges": True,
                "oomScoreAdj": int(OOM_SCORE),
            },
            "root": {"path": at},
            "hostname": spec.hostname,
            "mounts": _mounts(),
            "linux": {
                # runc runs in the instance's network already; process 1 there is the shim.
                "namespaces": [*namespaces, {"type": "user", "path": f"/proc/1/fd/{USERS_FD}"}],
                "uidMappings": ids,
                "gidMappings": ids,
                "cgroupsPath": f"/{GROUP_PREFIX}{spec.id}",
                "resources": _resources(spec),
                "seccomp": seccomp.runtime_profile(),
                "maskedPaths": [f"/proc/{each}" for each in (*NO_PROC_FILES, *NO_PROC_FOLDERS)],
                "readonlyPaths": [f"/proc/{each}" for each in READ_ONLY_PROC],
            },
        }


def _shims() -> Path:
    """Make the control group of all shims, beside those of instances."""
    try:
        at = next(each for each in hierarchies() if "cpu" in each.controllers)
        return make_shim_group(at.version, at.mount)
    except (OSError, StopIteration) as error:
        raise SandboxFailed(f"the group of shims cannot be made: {error}") from error


def _resources(spec: InstanceSpec) -> dict[str, Any]:
    memory = spec.bounds.memory_mb * MIB
    return {
        "memory": {"limit": memory, "swap": memory},  # no swap: both limits together
        "pids": {"limit": spec.bounds.processes},
        "cpu": {
            "quota": spec.bounds.cpu_millis * PERIOD_US // 1000,
            "period": PERIOD_US,
            "shares": shares(spec.bounds.cpu_millis),
        },
        "devices": [{"allow": False, "access": "rwm"}],
    }


def _mounts() -> list[dict[str, Any]]:
    def mount(at: str, kind: str, *options: str) -> dict[str, Any]:
        return {"destination": at, "type": kind, "source": kind, "options": ["nosuid", *options]}

    terminals = ("noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5")
    return [
        mount("/proc", "proc", "noexec", "nodev"),
        mount("/dev", "tmpfs", "strictatime", "mode=755", "size=64k"),
        mount("/dev/pts", "devpts", *terminals),
        mount("/dev/shm", "tmpfs", "noexec", "nodev", "mode=1777", f"size={SHM_MB}m"),  # noqa: S108
        mount("/dev/mqueue", "mqueue", "noexec", "nodev"),
    ]

"""The driver `bubblewrap`: instances without root, in user namespaces of the service's user.

The files that an instance writes are in memory, since without root no other disk can be limited.
Control groups, which must be delegated to the service, limit the other resources.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from cloudcore.compute.driver import InstanceSpec, SandboxFailed
from cloudcore.compute.shim.program import OPTIONS_FD, OPTIONS_FILE
from cloudcore.compute.shim_instances import (
    GROUP_PREFIX,
    NO_PROC_FILES,
    NO_PROC_FOLDERS,
    SHM_MB,
    ShimInstances,
    argv_of,
    environment_of,
    root_folder,
    root_of,
)
from cloudcore.nodes import control_groups, seccomp
from cloudcore.nodes.control_groups import MIB, GroupsMissing
from cloudcore.nodes.node import DriverUnusable
from cloudcore.nodes.shim import INFO_FD, SECCOMP_FD, SECCOMP_FILE
from cloudcore.nodes.shim_driver import require_confinement, require_programs, write_file

_PROGRAMS: Final = {"bwrap": "bubblewrap", "ip": "iproute2", "unshare": "util-linux"}


def bubblewrap_driver(folder: Path) -> ShimInstances:
    """Return the driver, which stores its files in a folder of this machine."""
    return ShimInstances(folder, _Bubblewrap())


class _Bubblewrap:
    name = "bubblewrap"
    namespaces: Sequence[str] = ("--user", "--map-root-user")
    takes_links = False

    def require(self) -> None:
        """Raise `DriverUnusable` if a program, libseccomp or the control groups are missing."""
        if os.geteuid() == 0:
            raise DriverUnusable(
                "compute_driver bubblewrap is for a service without root: set runc"
            )
        require_programs("compute_driver bubblewrap", _PROGRAMS)
        require_confinement("compute_driver bubblewrap")

    def order(self, spec: InstanceSpec, folder: Path) -> Mapping[str, object]:
        """Write bwrap's options and the seccomp filter, and make the control groups.

        Return bwrap's part of the shim's instructions (``order.json``). Raise `SandboxFailed` if
        the groups cannot be made.
        """
        at = root_folder(folder, *spec.root.layers)
        argv = argv_of(spec)
        write_file(folder / OPTIONS_FILE, ("\0".join(_options(spec, at)) + "\0").encode())
        seccomp.write_program(folder / SECCOMP_FILE)
        try:
            parents = control_groups.delegated()
            groups = control_groups.make(parents, f"{GROUP_PREFIX}{spec.id}", spec.bounds)
            shims = control_groups.make_shim_group(*parents["cpu"])
        except (GroupsMissing, OSError) as error:
            raise SandboxFailed(str(error)) from error
        return {
            "root": root_of(spec, at, owner=None),
            "runtime": "bwrap",
            "launch": ["bwrap", "--args", str(OPTIONS_FD), "--", *argv],
            "groups": [str(group) for group in groups],
            "shims": str(shims),
        }

    def groups(self, instance_id: str) -> Sequence[Path]:
        """Return those of an instance's control groups, made by `order`, that exist."""
        return control_groups.existing(f"{GROUP_PREFIX}{instance_id}")


def _options(spec: InstanceSpec, at: str) -> list[str]:
    """Return the options of bwrap, in the order in which it mounts (bwrap(1))."""
    user = spec.root.config.user
    cwd = spec.root.config.working_dir or "/"
    return [
        *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup"),
        *("--disable-userns", "--uid", str(user.uid), "--gid", str(user.gid)),
        *("--hostname", spec.hostname, "--cap-drop", "ALL", "--new-session"),
        *("--die-with-parent", "--as-pid-1"),
        *("--bind", at, "/", "--proc", "/proc", "--dev", "/dev"),
        *("--perms", "1777", "--size", str(SHM_MB * MIB), "--tmpfs", "/dev/shm"),  # noqa: S108 - the instance's
        *(each for name in NO_PROC_FILES for each in _masked(f"/proc/{name}")),
        *(each for name in NO_PROC_FOLDERS for each in _hidden(f"/proc/{name}")),
        *("--dir", cwd, "--chdir", cwd),
        "--clearenv",
        *(part for each in environment_of(spec).items() for part in ("--setenv", *each)),
        *("--seccomp", str(SECCOMP_FD), "--info-fd", str(INFO_FD)),
    ]


def _masked(path: str) -> Sequence[str]:
    return ("--ro-bind", os.devnull, path) if Path(path).exists() else ()


def _hidden(path: str) -> Sequence[str]:
    return ("--tmpfs", path, "--remount-ro", path) if Path(path).is_dir() else ()

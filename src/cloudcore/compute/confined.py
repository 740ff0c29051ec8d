"""What the programs of all instances have alike, whatever confines them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cloudcore.compute.sandbox import InstanceSpec, SandboxFailed
from cloudcore.nodes.control_groups import MIB

DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
GROUP_PREFIX: Final = "entrepot-"
"""Of the names of control groups."""
SHM_MB: Final = 64
NO_PROC_FILES: Final = ("keys", "kcore", "latency_stats", "timer_list", "sched_debug", "kmsg")
"""Files in `/proc` that tell of the machine: instances see them empty."""
NO_PROC_FOLDERS: Final = ("acpi", "asound", "scsi", "pressure")
READ_ONLY_PROC: Final = ("bus", "fs", "irq", "sys", "sysrq-trigger")


def argv_of(spec: InstanceSpec) -> Sequence[str]:
    """Return the program of an instance and its arguments.

    Raise `SandboxFailed` if neither its pool nor its image names one.
    """
    argv = list(spec.command) or [*spec.root.config.entrypoint, *spec.root.config.cmd]
    if not argv:
        raise SandboxFailed("the image names no program: give the pool a command")
    return argv


def environment_of(spec: InstanceSpec) -> dict[str, str]:
    """Return the environment of an instance."""
    image = dict(each.partition("=")[::2] for each in spec.root.config.env)
    return {"PATH": DEFAULT_PATH, "HOSTNAME": spec.hostname} | image | dict(spec.environment)


def root_of(spec: InstanceSpec, at: str, owner: int | None) -> dict[str, object]:
    """Return the root of an instance, as its keeper is told (`keeper.root.Root`)."""
    return {
        "layers": [str(layer.absolute()) for layer in spec.root.layers],
        "at": at,
        "disk_bytes": spec.bounds.disk_mb * MIB,
        "owner": owner,
        "hosts": f"127.0.0.1 localhost {spec.hostname}\n::1 localhost\n",
    }

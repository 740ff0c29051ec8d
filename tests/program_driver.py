"""Drives programs as a process of its own: ``KIND FOLDER PORT [WHEN PLACE]``, commands on stdin.

The kind is a driver of instances (``runc`` or ``bubblewrap``), or ``databases``. So a test kills
it, also by itself at a place on its way, and it can be another user's. It imports the standard
library and the house alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from cloudcore.compute import shim_instances
from cloudcore.compute.bubblewrap import bubblewrap_driver
from cloudcore.compute.driver import InstanceSpec, SandboxFailed
from cloudcore.compute.images import ImageConfig, ImageRoot, ImageUser
from cloudcore.compute.runc import runc_driver
from cloudcore.compute.shim_instances import ShimInstances
from cloudcore.databases.archive.driver import Recovery
from cloudcore.databases.servers import bubblewrap, data_folders, postgres
from cloudcore.databases.servers.bubblewrap import BubblewrapServers, Listening
from cloudcore.databases.servers.driver import ServerFailed, ServerSpec
from cloudcore.nodes import control_groups, detached_process, shim_driver
from cloudcore.nodes.control_groups import Bounds
from cloudcore.nodes.node import DriverUnusable

FIRST_INSTANCE_UID: Final = 200_000
FIRST_SERVER_UID: Final = 270_000
Places = Mapping[str, tuple[Any, ...]]
_INSTANCES: Final[Places] = {
    "write": ("write_file", shim_instances),
    "launch": ("start", detached_process),
    "ask": ("ask", shim_instances, shim_driver),
    "signal": ("pidfd_send_signal", signal),
    "groups": ("remove", control_groups),
    "files": ("rmtree", shutil),
}
"""Where a driver of instances does something that lasts: a name, and the modules that call it."""
_SERVERS: Final[Places] = {
    "write": ("write_file", bubblewrap),
    "launch": ("start", detached_process),
    "ask": ("ask", bubblewrap, shim_driver),
    "groups": ("remove", control_groups),
    "clean": ("clean", data_folders),
    "settle": ("settle", bubblewrap),
    "roles": ("single_user", postgres),
    "files": ("remove_tree", data_folders),
}
"""Where the driver of servers does."""


def _die(*_arguments: object, **_options: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _arm(when: str, name: str, *modules: Any) -> None:  # noqa: ANN401
    call: Callable[..., Any] = getattr(modules[0], name)

    def die_then(*arguments: Any, **options: Any) -> None:  # noqa: ANN401
        call(*arguments, **options)
        _die()

    for module in modules:
        setattr(module, name, _die if when == "before" else die_then)


def _instance(given: dict[str, Any]) -> InstanceSpec:
    user = ImageUser(*given.pop("user", (0, 0)))
    config = ImageConfig((), given.pop("cmd", ()), ("IMAGE=1",), given.pop("cwd", "/"), user)
    layers = tuple(map(Path, given.pop("layers")))
    return InstanceSpec(
        **given
        | {"root": ImageRoot("", layers, config), "bounds": Bounds(*given["bounds"])}
        | {"hostname": given["id"][:8], "has_network": False}
    )


async def _do(driver: Any, method: str, arguments: list[Any]) -> object:  # noqa: ANN401
    if arguments and isinstance(arguments[0], dict):
        is_server = isinstance(driver, BubblewrapServers)
        arguments[0] = ServerSpec(**arguments[0]) if is_server else _instance(arguments[0])
    options: dict[str, Any] = {}
    if method == "recover":
        spec, target_time, uses_archive, is_to_end = arguments
        recovery = Recovery(target_time, uses_archive=uses_archive, is_to_end=is_to_end)
        await driver.recover(spec, recovery)
        method, arguments = "start", [spec]
    elif method == "remove" and len(arguments) > 1:
        options = {"at_once": arguments.pop()}
    done = getattr(driver, method)(*arguments, **options)
    if asyncio.iscoroutine(done):
        done = await done
    if method == "seen":
        return {name: seen._asdict() for name, seen in done.items()}
    if isinstance(done, bytes):
        return done.decode("latin-1")
    return str(done) if isinstance(done, Path) else done


async def _main(kind: str, folder: str, port: str, when: str = "", place: str = "") -> None:
    base = Path(folder)
    driver: ShimInstances | BubblewrapServers
    if kind == "databases":
        driver = BubblewrapServers(base, Listening("127.0.0.1", int(port), FIRST_SERVER_UID))
    elif kind == "runc":
        driver = runc_driver(base, FIRST_INSTANCE_UID)
    else:
        driver = bubblewrap_driver(base)
    if place:
        _arm(when, *(_SERVERS if kind == "databases" else _INSTANCES)[place])
    for line in sys.stdin:
        try:
            said = {"result": await _do(driver, *json.loads(line))}
        except (SandboxFailed, ServerFailed, DriverUnusable) as failed:
            said = {"failed": str(failed)}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))

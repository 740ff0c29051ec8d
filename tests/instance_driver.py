"""Drives instances as a process of its own: ``RUNTIME FOLDER [PLACE]``, commands on stdin.

So a test kills it, also by itself at a place on its way, and it can be another user's. It imports
the standard library and the house alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from cloudcore.compute import kept_instances
from cloudcore.compute.bubblewrap import bubblewrap_driver
from cloudcore.compute.images import ImageConfig, ImageRoot, ImageUser
from cloudcore.compute.runc import runc_driver
from cloudcore.compute.sandbox import Bounds, InstanceSpec, SandboxDriver, SandboxFailed
from cloudcore.nodes import control_groups, kept_process
from cloudcore.nodes.node import DriverUnusable

FIRST_UID: Final = 200_000
_CALLS: Final[dict[str, tuple[Any, str]]] = {
    "write": (kept_instances, "write_file"),
    "launch": (kept_process, "start"),
    "ask": (kept_instances, "_ask"),
    "signal": (signal, "pidfd_send_signal"),
    "groups": (control_groups, "remove"),
    "files": (shutil, "rmtree"),
}
"""Where a driver does something that lasts."""
PLACES: Final = {
    "start": ("before write", "after write", "before launch", "after launch", "after ask"),
    "go": ("before ask", "after ask"),
    "stop": ("before ask", "after ask", "before groups", "after groups"),
    "remove": ("before signal", "after signal", "after groups", "before files", "after files"),
}


def _die(*_arguments: object, **_options: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _arm(when: str, place: str) -> None:
    module, name = _CALLS[place]
    call: Callable[..., Any] = getattr(module, name)

    def die_then(*arguments: Any, **options: Any) -> None:  # noqa: ANN401
        call(*arguments, **options)
        _die()

    setattr(module, name, _die if when == "before" else die_then)


def _spec(given: dict[str, Any]) -> InstanceSpec:
    user = ImageUser(*given.pop("user", (0, 0)))
    config = ImageConfig((), given.pop("cmd", ()), ("IMAGE=1",), given.pop("cwd", "/"), user)
    layers = tuple(map(Path, given.pop("layers")))
    return InstanceSpec(
        **given
        | {"root": ImageRoot("", layers, config), "bounds": Bounds(**given["bounds"])}
        | {"hostname": given["id"][:8], "has_network": False}
    )


async def _do(driver: SandboxDriver, method: str, arguments: list[Any]) -> object:
    if method == "start":
        netns = await driver.start(_spec(*arguments))
        return netns and str(netns)
    if method == "seen":
        return {name: seen._asdict() for name, seen in (await driver.seen()).items()}
    if method == "logs":
        return driver.logs(*arguments).decode("latin-1")
    if method == "check":
        driver.check()
        return None
    return await getattr(driver, method)(*arguments)


async def _main(runtime: str, folder: str, when: str = "", place: str = "") -> None:
    base = Path(folder)
    driver = runc_driver(base, FIRST_UID) if runtime == "runc" else bubblewrap_driver(base)
    if place:
        _arm(when, place)
    for line in sys.stdin:
        try:
            said = {"result": await _do(driver, *json.loads(line))}
        except (SandboxFailed, DriverUnusable) as failed:
            said = {"failed": str(failed)}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))

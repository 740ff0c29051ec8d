"""Drives database servers as a process of its own: ``FOLDER PORT [WHEN PLACE]``, commands on stdin.

So a test kills it, also by itself at a place on its way, and it can be another user's. It imports
the standard library and the house alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from cloudcore.databases import postgres, restored_data, servers
from cloudcore.databases.archive import Recovery
from cloudcore.databases.server import ServerFailed, ServerSpec
from cloudcore.databases.servers import Listening, Servers
from cloudcore.nodes import control_groups, kept_process
from cloudcore.nodes.node import DriverUnusable

FIRST_UID: Final = 270_000
_CALLS: Final[dict[str, tuple[Any, str]]] = {
    "write": (servers, "write_file"),
    "launch": (kept_process, "start"),
    "ask": (servers, "ask"),
    "groups": (control_groups, "remove"),
    "clean": (restored_data, "clean"),
    "settle": (servers, "settle"),
    "roles": (postgres, "single_user"),
    "files": (restored_data, "remove_tree"),
}
"""Where the driver does something that lasts."""


def _die(*_arguments: object, **_options: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _arm(when: str, place: str) -> None:
    module, name = _CALLS[place]
    call: Callable[..., Any] = getattr(module, name)

    def die_then(*arguments: Any, **options: Any) -> None:  # noqa: ANN401
        call(*arguments, **options)
        _die()

    setattr(module, name, _die if when == "before" else die_then)


async def _do(driver: Servers, method: str, arguments: list[Any]) -> object:
    if method == "seen":
        return {name: seen._asdict() for name, seen in (await driver.seen()).items()}
    if method == "check":
        driver.check()
        return None
    if arguments and isinstance(arguments[0], dict):
        arguments[0] = ServerSpec(**arguments[0])
    if method == "restoring":
        return str(driver.restoring(*arguments))
    if method == "remove":
        await driver.remove(arguments[0], at_once=arguments[1])
        return None
    if method == "recover":
        recovery = Recovery(arguments[1], uses_archive=arguments[2])
        await driver.start(arguments[0], recovery=recovery)
        return None
    return await getattr(driver, method)(*arguments)


async def _main(folder: str, port: str, when: str = "", place: str = "") -> None:
    driver = Servers(Path(folder), Listening("127.0.0.1", int(port), FIRST_UID))
    if place:
        _arm(when, place)
    for line in sys.stdin:
        try:
            said = {"result": await _do(driver, *json.loads(line))}
        except (ServerFailed, DriverUnusable) as failed:
            said = {"failed": str(failed)}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))

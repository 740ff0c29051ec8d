"""Calls at which the process that makes them kills itself."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

from tests.loaded import program_environment, run_loaded, start_worker


def die(*_arguments: object, **_options: object) -> None:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(number: int, call: Callable[..., Any], *, after: bool = False) -> Callable[..., Any]:
    """Return `call`, which kills this process before, or after, it is made the `number`-th time."""
    left = number

    def counted(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        nonlocal left
        left -= 1
        if left == 0 and not after:
            die()
        result = call(*arguments, **options)
        if left == 0:
            die()
        return result

    return counted


def let_die(module: str, *arguments: str) -> None:
    """Run a module of the tests as a process, which must kill itself."""
    ended = run_loaded(module, arguments, program_environment())
    assert ended.returncode == -signal.SIGKILL, ended.stderr


async def be_killed(place: str, module: str, *arguments: str) -> None:
    """Start a worker, a module of the tests that is given a place, and kill it when it is there."""
    worker = await asyncio.to_thread(start_worker, module, *arguments, place)
    try:
        assert await asyncio.to_thread(worker.stdout.readline) == "waiting\n"
    finally:
        worker.kill()

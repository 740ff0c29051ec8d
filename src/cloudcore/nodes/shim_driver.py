"""The service's side of shims: threads and locks for drivers, and how to start and end a shim."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from cloudcore.files import flush_folder
from cloudcore.nodes import control_groups, detached_process, seccomp
from cloudcore.nodes.control_groups import GroupsMissing
from cloudcore.nodes.detached_process import DetachedProcess
from cloudcore.nodes.node import DriverUnusable
from cloudcore.nodes.shim import STATE, NoAnswer, ask

PACKAGES: Final = Path(__file__).parents[2]
TO_END: Final = 30.0
"""Seconds in which a killed shim and all its descendants must have ended."""
T = TypeVar("T")


class ProgramThreads:
    """Runs blocking calls about programs in threads, one call at a time for each program."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        """Use `threads`, which nothing else may use."""
        self._threads = threads
        self._locks = WeakValueDictionary[str, asyncio.Lock]()

    async def run(self, act: Callable[[], T]) -> T:
        """Run a call in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, act)

    async def alone(self, program_id: str, act: Callable[[], T]) -> T:
        """Run a call in a thread, while no other call about the program runs."""
        async with self.held(program_id):
            return await self.run(act)

    @asynccontextmanager
    async def held(self, program_id: str) -> AsyncIterator[None]:
        """Hold the lock of a program: calls of `alone` about it wait during the block."""
        async with self._locks.setdefault(program_id, asyncio.Lock()):
            yield


def require_programs(setting: str, programs: Mapping[str, str]) -> None:
    """Raise `DriverUnusable` if a program is not installed; `programs` maps names to packages."""
    for program, package in programs.items():
        if shutil.which(program) is None:
            raise DriverUnusable(f"{setting} needs {program}: install the package {package}")


def require_confinement(setting: str) -> None:
    """Raise `DriverUnusable` if system calls cannot be filtered, or memory limited, here."""
    try:
        seccomp.write_program(Path(os.devnull))
        control_groups.delegated()
    except OSError:
        words = f"{setting} needs libseccomp: install the package libseccomp2"
        raise DriverUnusable(words) from None
    except GroupsMissing as missing:
        raise DriverUnusable(f"{setting} cannot bound memory: {missing}") from None


def shim_command(module: str, options: Sequence[str]) -> Sequence[str]:
    """Return the command that runs a module's `main` as a shim in new namespaces (unshare(1)).

    Killing the process of this command kills the shim.
    """
    begin = f"import sys; sys.path.append({str(PACKAGES)!r})"
    run = f"{begin}; from {module} import main; main()"
    namespaces = ("--net", "--mount", "--pid", "--fork", "--kill-child")
    return ("unshare", *options, *namespaces, sys.executable, "-I", "-S", "-c", run)


def living(folder: Path) -> DetachedProcess | None:
    """Return the running shim of a folder, or None.

    If the shim's program has stopped, wait for the shim's end, and return None.
    """
    process = detached_process.find(folder)
    if process is None or read_json(folder / STATE).get("status") != "stopped":
        return process
    if not process.wait(TO_END):
        process.signal(signal.SIGKILL)
    return None


def stop(folder: Path, grace_seconds: float) -> None:
    """Make the shim of a folder end its program within a grace period; wait for the shim's end.

    A shim that does not listen or does not end must be killed with `kill`.
    """
    process = living(folder)
    if process is not None:
        with suppress(NoAnswer, OSError):
            ask(folder, process, f"stop {grace_seconds}", grace_seconds + TO_END)
            process.wait(TO_END)


def kill(folder: Path) -> bool:
    """Kill the shim of a folder and its program; return False if they do not end in `TO_END`."""
    process = detached_process.find(folder)
    if process is None:
        return True
    process.signal(signal.SIGKILL)
    return process.wait(TO_END)


def write_file(
    path: Path, content: bytes, mode: int = 0o600, owner: tuple[int, int] | None = None
) -> None:
    """Replace a file atomically, with this content, mode and owner."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    opened = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(opened, "wb") as file:
        file.write(content)
        os.fchmod(opened, mode)
        if owner is not None:
            os.fchown(opened, *owner)
    new.replace(path)


def settle(made: Path, place: Path) -> None:
    """Move a complete folder to `place`, durably."""
    made.rename(place)
    flush_folder(place.parent)


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file of ours; empty if the file is absent or truncated."""
    try:
        found = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}

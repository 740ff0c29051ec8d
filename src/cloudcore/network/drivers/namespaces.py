"""Network namespaces of this machine: make, enter and remove them.

A thread is in a namespace, not a process. So each call inside a namespace runs in its own thread,
which ends with the call. Programs that the thread starts are in the namespace too, and
``/proc/sys/net`` has the namespace's settings.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")

FOLDER: Final = Path("/run/netns")
"""The folder of named namespaces, as in iproute2."""
HERE: Final = Path("/proc/thread-self/ns/net")
"""The namespace of the thread that opens this path."""
_CLONE_NEWNET: Final = 0x40000000
_libc: Final = ctypes.CDLL(None, use_errno=True)


def is_there(path: Path) -> bool:
    """Return True if a path leads to a namespace; False if it is absent or a leftover file."""
    try:
        return path.stat().st_dev == HERE.stat().st_dev
    except FileNotFoundError:
        return False


def ensure(path: Path) -> None:
    """Make a namespace with this path, unless it exists; all its links are down."""
    from pyroute2 import netns  # noqa: PLC0415 - a tenth of a second that most processes spare

    if is_there(path):
        return
    path.unlink(missing_ok=True)
    apart(lambda: netns.attach(str(path), threading.get_native_id()))


def remove(path: Path) -> None:
    """Remove the name of a namespace; the namespace ends with the last process in it."""
    from pyroute2 import netns  # noqa: PLC0415 - as above

    with suppress(FileNotFoundError):
        netns.remove(str(path))


def within(path: Path, call: Callable[[], T]) -> T:
    """Return the result of a call in a namespace; raise `OSError` if there is no such namespace."""

    def enter_and_call() -> T:
        with path.open("rb") as namespace:
            enter(namespace.fileno())
        return call()

    return _in_a_thread(enter_and_call)


def enter(descriptor: int) -> None:
    """Move this thread, and all programs that it starts, into an open namespace.

    Raise `OSError` if the descriptor is not of a namespace.
    """
    _check(_libc.setns(descriptor, _CLONE_NEWNET))


def apart(call: Callable[[], T]) -> T:
    """Call a function in a new namespace, and return its result."""

    def leave_and_call() -> T:
        _check(_libc.unshare(_CLONE_NEWNET))
        return call()

    return _in_a_thread(leave_and_call)


def set_sysctl(name: str, value: int) -> None:
    """Set ``net.<name>`` in this thread's namespace; slashes separate the parts of `name`."""
    Path("/proc/sys/net", name).write_text(f"{value:d}\n")


def sysctl(name: str) -> int | None:
    """Return ``net.<name>`` of this thread's namespace, or None if the kernel does not have it."""
    try:
        return int(Path("/proc/sys/net", name).read_text())
    except FileNotFoundError:
        return None


def _in_a_thread(call: Callable[[], T]) -> T:
    with ThreadPoolExecutor(1, "netns") as thread:
        return thread.submit(call).result()


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))

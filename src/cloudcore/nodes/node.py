"""The machine that a process runs on.

Imports only the standard library, so that drivers can use it where nothing else is installed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple

from cloudcore.ports import Port


class Node(NamedTuple):
    """A machine that runs the service."""

    name: str
    """Unique in the install. Rows whose work is on a machine have it."""
    folder: Path
    """Where families keep what is of this machine alone, each in a folder of its own."""
    capabilities: tuple[str, ...] = ()
    """What it can run, such as ``instances``."""


NODE: Final[Port[Node]] = Port("platform.node")


class Watch(NamedTuple):
    """A task that one process of a machine repeats.

    Its turns never overlap, not even in two processes.
    """

    name: str
    every_seconds: float
    turn: Callable[[], Awaitable[object]]
    """It is taken first when the process begins to watch; a turn that fails is logged. It writes to
    the database only what has changed."""


class DriverUnusable(Exception):
    """A driver cannot run on this machine; the message says in one line what to do."""


NODE_LOST: Final = "NODE_LOST"
"""Code of the fault of what is on a machine that was not seen for a while."""

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
    """Unique in the install; stored in the rows of work that is done on the machine."""
    folder: Path
    """Folder for data of this machine alone, with a subfolder for each family."""
    capabilities: tuple[str, ...] = ()
    """What the machine can run, such as ``instances``."""


NODE: Final[Port[Node]] = Port("platform.node")


class Watch(NamedTuple):
    """A task that one process of a machine repeats.

    Its turns never overlap, not even in two processes.
    """

    name: str
    every_seconds: float
    turn: Callable[[], Awaitable[object]]
    """Does one turn; the first begins when the process starts to watch. A failure is logged. A turn
    writes only changes to the database."""


class DriverUnusable(Exception):
    """A driver cannot run on this machine; the message says in one line what to do."""


NODE_LOST: Final = "NODE_LOST"
"""Code of the fault of a resource whose machine was not seen for a while."""

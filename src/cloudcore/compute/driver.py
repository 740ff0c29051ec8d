"""The input and output types of the instance drivers, `runc` and `bubblewrap`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from cloudcore.compute.images import ImageRoot
from cloudcore.nodes.control_groups import Bounds

MOST_LOG_BYTES: Final = 10_000_000
"""How much of an instance's output is kept: two files of half as much; the older one is
overwritten."""


class SandboxFailed(Exception):
    """An instance could not be created, stopped or removed.

    The message gives the reason in one line.
    """


class InstanceSpec(NamedTuple):
    """The configuration of an instance to start."""

    id: str
    """A UUID, which is also the name of its folder."""
    hostname: str
    root: ImageRoot
    command: Sequence[str]
    """Replaces the image's entrypoint and arguments; empty: those of the image."""
    environment: Mapping[str, str]
    """Variables added to those of the image; a variable of the same name is replaced."""
    bounds: Bounds
    """The limits of its resources. Without root, files that it writes count as its memory."""
    disk_mb: int
    """How many MiB it may write."""
    ports: Sequence[int]
    """TCP ports of its program; each can also be reached through the socket `ports/<port>` in its
    folder."""
    has_network: bool
    """A link is put into its network namespace before `go`. If False, it has only its loopback."""


class InstanceState(NamedTuple):
    """The state of an instance on this machine."""

    status: Literal["starting", "running", "stopped"]
    """Starting until its program runs; stopped if its program or its shim has ended."""
    exit_code: int | None = None
    """The exit code of its program, or 128 plus the number of the signal that ended the program.
    None while the program runs, or if its shim was killed, so that the exit code is unknown."""
    started_at: int | None = None
    """When its program began, in microseconds since the epoch."""
    problem: str = ""
    """Why its program could not be started, in one line."""

"""The interface of drivers, which run instances confined: `runc` and `bubblewrap` implement it.

A driver has one folder and one process, the shim, for each instance. Both outlive the service, so
an instance stays the same over a restart, and is started at most once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

from cloudcore.compute.images import ImageRoot
from cloudcore.nodes.control_groups import Bounds

MOST_LOG_BYTES: Final = 10_000_000
"""Of an instance's output: two files of half as much, of which the older is written over."""


class SandboxFailed(Exception):
    """An instance could not be made, stopped or removed.

    The message gives the reason in one line.
    """


class InstanceSpec(NamedTuple):
    """An instance to start."""

    id: str
    """A UUID, which is also the name of its folder."""
    hostname: str
    root: ImageRoot
    command: Sequence[str]
    """Takes the place of the image's entrypoint and arguments; empty leaves them."""
    environment: Mapping[str, str]
    """Beside that of the image, of which it changes what it names."""
    bounds: Bounds
    """Without root, what it writes counts as its memory."""
    disk_mb: int
    """Of 1,048,576 bytes that it may write."""
    ports: Sequence[int]
    """TCP ports of its program, each reached by the socket `ports/<port>` in its folder too."""
    has_network: bool
    """A link is put into its namespace before `go`; else it has its own loopback alone."""


class Seen(NamedTuple):
    """The state of an instance on this machine."""

    status: Literal["starting", "running", "stopped"]
    """Starting until its program runs; stopped if its program or its shim has ended."""
    exit_code: int | None = None
    """Of its program; 128 and the signal's number if one ended it; None while it runs, or if its
    shim was killed and nobody knows."""
    started_at: int | None = None
    """When its program began, in microseconds since the epoch."""
    problem: str = ""
    """Why its program could not be started, in one line."""


class SandboxDriver(Protocol):
    """Runs instances on this machine. Every method may be repeated after a crash at any point."""

    def check(self) -> None:
        """Raise `DriverUnusable`, in one line, if this machine cannot enforce every bound."""

    async def start(self, spec: InstanceSpec) -> Path | None:
        """Make the folder, the namespaces and the shim of an instance; its program waits for `go`.

        Return the network namespace that links can be put into, or None if this driver's cannot
        take any. An instance that is starting or running stays as it is. One that has ended starts
        again with an empty disk; its output is kept.

        Raise `SandboxFailed` if it cannot be made.
        """

    async def go(self, instance_id: str) -> None:
        """Start the program of an instance; do nothing if it runs.

        Raise `SandboxFailed` if there is no such instance.
        """

    async def seen(self) -> Mapping[str, Seen]:
        """Return all instances that have anything on this machine, by id."""

    async def stop(self, instance_id: str, grace_seconds: float) -> None:
        """Stop an instance: SIGTERM to its program, after the grace SIGKILL to all processes.

        Its folder stays, with its output and exit code. Do nothing if it has ended.
        """

    async def remove(self, instance_id: str) -> None:
        """Kill an instance and delete all that it has here: processes, namespaces and files."""

    def logs(self, instance_id: str, tail_bytes: int) -> bytes:
        """Return the end of an instance's output, both streams interleaved; empty if there is none.

        At most `MOST_LOG_BYTES`.
        """

    def folder(self, instance_id: str) -> Path:
        """Return the folder of an instance, there or not: `ports/<port>`, `credentials.json`."""

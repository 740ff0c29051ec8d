"""What runs an instance confined: the seam that the drivers `runc` and `bubblewrap` fill.

A driver keeps one folder an instance and one process beside it, the shim, which outlives the
service. So an instance is the same before and after a restart, and is started at most once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

from cloudcore.compute.images import ImageRoot

MOST_LOG_BYTES: Final = 10_000_000
"""Of an instance's output: two files of half as much, of which the older is written over."""


class SandboxFailed(Exception):
    """An instance could not be made, stopped or removed; the message says why in one line."""


class Bounds(NamedTuple):
    """What an instance may use at most; the kernel enforces each."""

    memory_mb: int
    """Of 1,048,576 bytes, with what the kernel keeps for it; without root also what it writes."""
    cpu_millis: int
    """Thousandths of a processor."""
    processes: int
    """Threads included."""
    disk_mb: int
    """Of 1,048,576 bytes that it may write."""


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
    ports: Sequence[int]
    """TCP ports of its program, each reached by the socket `ports/<port>` in its folder too."""
    has_network: bool
    """A link is put into its namespace before `go`; else it has its own loopback alone."""


class Seen(NamedTuple):
    """What an instance is on this machine now."""

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
    """Runs instances on this machine. Every method may be repeated after a death at any point."""

    def check(self) -> None:
        """Raise `DriverUnusable`, in one line, if this machine cannot give every bound."""

    async def start(self, spec: InstanceSpec) -> Path | None:
        """Make the folder, the namespaces and the shim of an instance, whose program waits.

        Return the network namespace that links can be put into, or None if this driver's cannot
        take any. One that is starting or runs is left as it is, and its namespace returned; one
        that has ended begins anew, with an empty disk and after the output that it had.

        Raise `SandboxFailed` if it cannot be made.
        """

    async def go(self, instance_id: str) -> None:
        """Let the program of a started instance run; do nothing if it has.

        Raise `SandboxFailed` if there is no such instance.
        """

    async def seen(self) -> Mapping[str, Seen]:
        """Return every instance that this machine has something of, by its id."""

    async def stop(self, instance_id: str, grace_seconds: float) -> None:
        """End an instance: SIGTERM to its program, and after the grace SIGKILL to all it has.

        Its folder stays, with its output and exit code. Do nothing if it has ended.
        """

    async def remove(self, instance_id: str) -> None:
        """Kill an instance and take away all it has here: its processes, namespaces and files."""

    def logs(self, instance_id: str, tail_bytes: int) -> bytes:
        """Return the end of an instance's output, both streams as they came; empty if none.

        At most `MOST_LOG_BYTES`.
        """

    def folder(self, instance_id: str) -> Path:
        """Return the folder of an instance, there or not: `ports/<port>`, `credentials.json`."""

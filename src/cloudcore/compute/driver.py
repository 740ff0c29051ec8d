"""The input and output types of the instance drivers, `runc` and `bubblewrap`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from cloudcore.compute.images import ImageRoot
from cloudcore.nodes.control_groups import Bounds

MOST_LOG_BYTES: Final = 10_000_000
"""Of an instance's output: two files of half as much, of which the older is written over."""


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


class SeenInstance(NamedTuple):
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

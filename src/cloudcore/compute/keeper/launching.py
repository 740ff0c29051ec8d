"""Starts the program of an instance, by `runc` or by `bwrap`."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from cloudcore.compute.keeper import network
from cloudcore.compute.keeper.commands import CommandFailed
from cloudcore.compute.keeper.users import USERS_FD

SECCOMP_FILE: Final = "seccomp.bpf"
OPTIONS_FILE: Final = "options"
SECCOMP_FD: Final = 101
OPTIONS_FD: Final = 102
INFO_FD: Final = 103
"""Where `bwrap` tells the id of the program's process."""
PID_FILE: Final = "program.pid"
"""Where `runc` does."""
OOM_SCORE: Final = "500"
"""Instances are killed before the service when the machine itself has no memory left."""


class Program(NamedTuple):
    """A program that was started."""

    descriptor: int | None
    """Its process, as none has its id later; None if it has ended."""
    awaited: int
    """The id of the child of this process that ends with its exit code."""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it has not ended."""
        if self.descriptor is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.descriptor, number)


def start_by_runc(argv: Sequence[str], output: int) -> Program:
    """Start a program by `runc run --detach`, which leaves it as a child of this process."""
    runtime = _popen(argv, output, (USERS_FD,), ())
    if runtime.wait():
        raise CommandFailed(f"runc ended with {runtime.returncode}")
    pid = int(Path(PID_FILE).read_text("ascii"))
    return Program(os.pidfd_open(pid), pid)


def start_by_bubblewrap(argv: Sequence[str], output: int, groups: Sequence[str]) -> Program:
    """Start a program by `bwrap`, in control groups; it waits for it, and has its exit code."""
    opened = {}
    for number, name in ((SECCOMP_FD, SECCOMP_FILE), (OPTIONS_FD, OPTIONS_FILE)):
        opened[number] = os.open(name, os.O_RDONLY)
    info, opened[INFO_FD] = os.pipe2(os.O_CLOEXEC)
    for number, descriptor in opened.items():
        os.dup2(descriptor, number, inheritable=False)
        os.close(descriptor)
    try:
        monitor = _popen(argv, output, tuple(opened), groups)
    finally:
        for number in opened:
            os.close(number)
    with os.fdopen(info, "rb") as lines:
        told = lines.read()
    if not told:
        raise CommandFailed(f"bwrap ended with {monitor.wait()}")
    try:
        return Program(os.pidfd_open(json.loads(told)["child-pid"]), monitor.pid)
    except ProcessLookupError:
        return Program(None, monitor.pid)


def _popen(
    argv: Sequence[str], output: int, pass_fds: Sequence[int], groups: Sequence[str]
) -> subprocess.Popen[bytes]:
    def enter() -> None:
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE, "ascii")
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for group in groups:
            Path(group, "cgroup.procs").write_text("0", "ascii")

    with network.in_instance():
        return subprocess.Popen(  # noqa: S603 - the driver's
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=pass_fds,
            preexec_fn=enter,  # noqa: PLW1509 - this process has one thread
        )

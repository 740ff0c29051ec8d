"""Starts the program of an instance, by `runc` or by `bwrap`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cloudcore.compute.keeper import network
from cloudcore.compute.keeper.users import USERS_FD
from cloudcore.nodes.keeper import (
    SECCOMP_FD,
    SECCOMP_FILE,
    Program,
    start_by_bubblewrap,
    start_process,
)
from cloudcore.nodes.keeper_commands import CommandFailed

OPTIONS_FILE: Final = "options"
OPTIONS_FD: Final = 102
PID_FILE: Final = "program.pid"
"""Where `runc` writes the id of the program's process."""


def start_by_runc(argv: Sequence[str], output: int) -> Program:
    """Start a program by `runc run --detach`, which leaves it as a child of this process."""
    runtime = start_process(argv, output, (USERS_FD,), within=network.in_instance)
    if runtime.wait():
        raise CommandFailed(f"runc ended with {runtime.returncode}")
    pid = int(Path(PID_FILE).read_text("ascii"))
    return Program(os.pidfd_open(pid), pid)


def start_in_instance(argv: Sequence[str], output: int, groups: Sequence[str]) -> Program:
    """Start a program by `bwrap`, in the instance's network."""
    files = {SECCOMP_FD: SECCOMP_FILE, OPTIONS_FD: OPTIONS_FILE}
    return start_by_bubblewrap(argv, output, groups, files=files, within=network.in_instance)

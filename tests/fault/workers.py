"""The worker processes of a server: which there are, whose a connection is, and their end."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

PATIENCE_SECONDS: Final = 15


def workers_of(pid: int) -> list[int]:
    """Return the process ids of a supervisor's workers."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def files_of(pid: int) -> Iterator[str]:
    """Yield what the descriptors of a process refer to; it closes some meanwhile."""
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            yield str(each.readlink())


def owner_of(remote_port: int, local_port: int, pids: list[int]) -> int:
    """Return the process that has a connection between two ports of this machine."""
    remote = f":{remote_port:04X} "
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(f":{local_port:04X}") and f"{fields[2]} ".endswith(remote):
            link = f"socket:[{fields[9]}]"
            for pid in pids:
                if link in files_of(pid):
                    return pid
    raise AssertionError("no worker has the connection")


def kill(pids: Sequence[int]) -> None:
    """Kill processes and wait until their last threads have ended; their files are closed then."""
    processes = [os.pidfd_open(pid) for pid in pids]
    try:
        for process in processes:
            signal.pidfd_send_signal(process, signal.SIGKILL)
        for process in processes:
            assert select.select([process], [], [], PATIENCE_SECONDS)[0], "a process lives on"
    finally:
        for process in processes:
            os.close(process)

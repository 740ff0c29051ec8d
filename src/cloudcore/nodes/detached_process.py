"""Processes that outlive the service: proxies, and the shims of instances and database servers.

Each has a folder. `launcher` is run as a program of the standard library alone to start a process:
it takes the folder's lock, checks that the process does not run already, writes the process's
identity and becomes it by `exec`. So whatever dies at any moment, a folder never has two processes,
and every process that runs is recorded in its folder.

A process is identified by its id, its start time and the boot of the machine, as the kernel reuses
ids. Signals go through a descriptor, which stays with that process.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from cloudcore.nodes import launcher
from cloudcore.nodes.launcher import IDENTITY as IDENTITY  # noqa: PLC0414 - for callers
from cloudcore.nodes.launcher import OUTPUT

_END_SECONDS: Final = 5


class LaunchFailed(Exception):
    """A process could not be started; the message says why."""


class DetachedProcess(NamedTuple):
    """A process that was alive when `find` returned it."""

    pid: int
    began: int
    """Clock ticks since the boot."""

    @property
    def is_alive(self) -> bool:
        """Return True if the process runs; a zombie does not."""
        return launcher.began_at(self.pid) == self.began

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal; return False if the process has ended.

        Never signal one that has reused its id.
        """
        with self._descriptor() as descriptor:
            if descriptor is None:
                return False
            try:
                signal.pidfd_send_signal(descriptor, number)
            except ProcessLookupError:
                return False
        return True

    def wait(self, seconds: float) -> bool:
        """Block until the process has ended, at most so long; return True if it has."""
        with self._descriptor() as descriptor:
            if descriptor is None:
                return True
            ended = select.poll()
            ended.register(descriptor, select.POLLIN)
            return bool(ended.poll(max(0, round(seconds * 1000))))

    @contextlib.contextmanager
    def _descriptor(self) -> Iterator[int | None]:
        """Open the process, then check its identity: the descriptor cannot change from then on."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            yield None
            return
        try:
            yield descriptor if self.is_alive else None
        finally:
            os.close(descriptor)


def start(
    folder: Path,
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    netns: Path | None = None,
    pass_fds: Sequence[int] = (),
) -> DetachedProcess:
    """Start a process in a session of its own and return it, or return the one that the folder has.

    Its working folder is the folder; its environment is `env` alone, its standard input is empty,
    and its output goes to `OUTPUT`. `netns` is the network namespace that it starts in, which takes
    root. It inherits the descriptors `pass_fds` by the same numbers. The call takes as long as an
    interpreter to start.

    Raise `LaunchFailed` if it cannot be started.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    order = launcher.order_of(
        str(folder.absolute()), [*argv], {**(env or {})}, None if netns is None else str(netns)
    )
    launched = subprocess.run(  # noqa: S603 - our own program
        (sys.executable, "-I", "-S", launcher.__file__),
        input=order,  # no argument: all users of the machine see those
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={},
        pass_fds=pass_fds,
        check=False,
    )
    found = find(folder)
    if launched.stdout or launched.returncode:
        if found is not None:
            found.wait(_END_SECONDS)  # it has said why, and is about to end
        raise LaunchFailed(f"{argv[0]}: {launched.stdout.decode(errors='replace').strip()}")
    if found is None:
        raise LaunchFailed(f"{argv[0]} ended at once: {_last_line(folder / OUTPUT)}")
    return found


def find(folder: Path) -> DetachedProcess | None:
    """Return the process of a folder if it is alive."""
    found = launcher.find(str(folder))
    return None if found is None else DetachedProcess(*found)


def _last_line(file: Path) -> str:
    lines = file.read_bytes()[-500:].decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"

"""Processes that outlive the service: proxies, and the shims of instances and database servers.

Each has a folder. To start a process, this file is run as a program that imports only the standard
library: it locks the folder, checks that the process is not already running, writes the process's
identity and becomes the process by `exec`. So whatever dies at any moment, a folder never has two
processes, and every running process is recorded in its folder.

A process is identified by its id, its start time and the boot of the machine, as the kernel reuses
ids. Signals go through a descriptor, which always refers to that same process.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

IDENTITY: Final = "process"
"""The file in the folder that identifies the process: its id, its start time (clock ticks since the
boot, field 22 of ``/proc/PID/stat``) and the boot's id."""
OUTPUT: Final = "process.log"
"""The file in the folder that takes both output streams of the process; emptied by each start."""
_LOCK: Final = "process.lock"
_END_SECONDS: Final = 5
_CLONE_NEWNET: Final = 0x40000000


class LaunchFailed(Exception):
    """A process could not be started; the message has the reason."""


class DetachedProcess(NamedTuple):
    """A process that outlives the service, and that was alive when `find` returned it."""

    pid: int
    began: int
    """Clock ticks since the boot."""

    @property
    def is_alive(self) -> bool:
        """Return True if the process runs; a zombie counts as ended."""
        return _began(self.pid) == self.began

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal; return False if the process has ended.

        A process that has reused the id is never signalled.
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
        """Block until the process has ended, at most `seconds`; return True if it has."""
        with self._descriptor() as descriptor:
            if descriptor is None:
                return True
            ended = select.poll()
            ended.register(descriptor, select.POLLIN)
            return bool(ended.poll(max(0, round(seconds * 1000))))

    @contextlib.contextmanager
    def _descriptor(self) -> Iterator[int | None]:
        """Open a descriptor of the process, then check its identity; yield None if it has ended."""
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
    """Start a folder's process in its own session, unless it already runs; return the process.

    Its working directory is the folder, its environment is only `env`, its standard input is empty,
    and its output goes to `OUTPUT`. It starts in the network namespace `netns`, which requires
    root. It inherits the descriptors `pass_fds` under the same numbers. The call takes as long as
    an interpreter needs to start.

    Raise `LaunchFailed` if the process cannot be started.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    order = json.dumps([str(folder.absolute()), list(argv), dict(env or {}), netns and str(netns)])
    launched = subprocess.run(  # noqa: S603 - our own program
        (sys.executable, "-I", "-S", __file__),
        input=order.encode(),  # no argument: all users of the machine see those
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
    """Return the process of a folder, or None if it is not alive."""
    try:
        pid, began, boot = (folder / IDENTITY).read_text("ascii").split()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    process = DetachedProcess(int(pid), int(began))
    return process if boot == _boot() and process.is_alive else None


def _last_line(file: Path) -> str:
    lines = file.read_bytes()[-500:].decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def _began(pid: int) -> int | None:
    """Return when a process started, or None if there is none, or only a zombie (proc(5))."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in b"ZX" else int(fields[19])


def launch(folder: Path, argv: list[str], env: dict[str, str], netns: str | None) -> None:
    """Become the process of a folder, unless it has one; print errors to standard output."""
    os.setsid()
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    if find(folder) is not None:
        return
    if netns is not None:
        _enter(netns)
    os.chdir(folder)
    program = _found(argv[0], env)
    new = folder / f"{IDENTITY}.new"
    new.write_text(f"{os.getpid()} {_began(os.getpid())} {_boot()}\n", "ascii")
    output = os.open(OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    told = os.dup(1)  # closed by the exec; so the reader learns that there was no error
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    new.replace(folder / IDENTITY)
    try:
        os.execve(program, argv, env)  # noqa: S606 - no shell
    except OSError as error:
        os.write(told, str(error).encode())
        os._exit(1)


def _found(program: str, env: Mapping[str, str]) -> str:
    """Return the path of a program, searched as a shell does."""
    for entry in [""] if "/" in program else env.get("PATH", os.defpath).split(":"):
        path = Path(entry, program)
        if os.access(path, os.X_OK) and path.is_file():
            return str(path)
    raise FileNotFoundError(f"there is no program {program}")


def _enter(netns: str) -> None:
    with Path(netns).open("rb") as opened:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(opened.fileno(), _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"setns: {os.strerror(number)}", netns)


def _main() -> None:
    folder, argv, env, netns = json.load(sys.stdin)
    if os.fork() != 0:
        os._exit(0)  # the starter waits for the output, and is not to be the process's parent
    try:
        launch(Path(folder), argv, env, netns)
    except OSError as error:
        os.write(1, str(error).encode())
        os._exit(1)


if __name__ == "__main__":
    _main()

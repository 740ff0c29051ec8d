"""Becomes the process of a folder that has none: the program that `detached_process.start` runs.

Each start of a proxy, an instance or a database server waits for it. So it imports what Python has
loaded anyway and little else: `pathlib`, `json` or `typing` would take longer than all it does.
"""

# ruff: noqa: PTH105, PTH113, PTH118, PTH123 - see above

from __future__ import annotations

import fcntl
import os
import signal
import sys

IDENTITY = "process"
"""The file in the folder that says which process: its id, when it began (clock ticks since the
boot, field 22 of ``/proc/PID/stat``) and the boot's id."""
OUTPUT = "process.log"
"""The file in the folder that takes both streams of the process; begun anew by each start."""
_LOCK = "process.lock"
_CLONE_NEWNET = 0x40000000


def find(folder: str) -> tuple[int, int] | None:
    """Return the id of a folder's process and when it began; None if it is not alive."""
    try:
        with open(f"{folder}/{IDENTITY}", encoding="ascii") as file:
            pid, began, boot = file.read().split()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    found = int(pid), int(began)
    return found if boot == _boot() and began_at(found[0]) == found[1] else None


def began_at(pid: int) -> int | None:
    """Return when a process started; None if there is none, or a zombie (proc(5))."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in b"ZX" else int(fields[19])


def _boot() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def order_of(folder: str, argv: list[str], env: dict[str, str], netns: str | None) -> bytes:
    """Return what the program reads: the arguments of `launch`, which hold no NUL."""
    variables = (f"{name}={value}" for name, value in env.items())
    words = (folder, netns or "", str(len(argv)), *argv, *variables)
    return b"\0".join(map(os.fsencode, words))


def launch(folder: str, argv: list[str], env: dict[str, str], netns: str | None) -> None:
    """Become the process of a folder, if it has none; errors go to standard output."""
    os.setsid()
    lock = os.open(f"{folder}/{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    if find(folder) is not None:
        return
    if netns is not None:
        _enter(netns)
    os.chdir(folder)
    program = _found(argv[0], env)
    with open(f"{IDENTITY}.new", "w", encoding="ascii") as new:
        new.write(f"{os.getpid()} {began_at(os.getpid())} {_boot()}\n")
    output = os.open(OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    told = os.dup(1)  # closed by the exec: so its reader learns that there was none to tell
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    os.replace(f"{IDENTITY}.new", IDENTITY)
    try:
        os.execve(program, argv, env)  # noqa: S606 - no shell
    except OSError as error:
        os.write(told, str(error).encode())
        os._exit(1)


def _found(program: str, env: dict[str, str]) -> str:
    """Return the path of a program, found as the shell finds it."""
    for entry in [""] if "/" in program else env.get("PATH", os.defpath).split(":"):
        path = os.path.join(entry, program)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    raise FileNotFoundError(f"there is no program {program}")


def _enter(netns: str) -> None:
    import ctypes  # noqa: PLC0415 - few need it

    with open(netns, "rb") as opened:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(opened.fileno(), _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"setns: {os.strerror(number)}", netns)


def _main() -> None:
    folder, netns, count, *words = os.fsdecode(sys.stdin.buffer.read()).split("\0")
    argv, variables = words[: int(count)], words[int(count) :]
    env = dict(each.split("=", 1) for each in variables)
    if os.fork() != 0:
        os._exit(0)  # what started this waits for its output, and is not the process's parent
    try:
        launch(folder, argv, env, netns or None)
    except OSError as error:
        os.write(1, str(error).encode())
        os._exit(1)


if __name__ == "__main__":
    _main()

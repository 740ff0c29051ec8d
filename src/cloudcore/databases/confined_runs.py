"""Run programs on files that are not to be trusted, each confined by bubblewrap.

A run sees the programs of the machine, read-only, and the folders that it is given. It has neither
capabilities nor a shell of ours, acts as the cluster's own user, and ends with this process, also
when that is killed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from cloudcore.databases.archive import BackupFailed, BackupProgramMissing
from cloudcore.databases.confinement import AS_ROOT, User, as_user

_LAST_LINES: Final = 6
_MOST_LINE: Final = 500
_LIMIT: Final = 32 << 20
"""Bytes of a line of output: pgBackRest lists all backups on one line, each with those it needs."""
_BY_SIGNAL: Final = 128
_SIGNALS: Final = 65
_MEMORY: Final = 4 << 30
"""Bytes of address space of a program: what it reads may be made to fill the memory."""
_ETC: Final = ("/etc/ld.so.cache", "/etc/localtime")
_SYSTEM: Final = ("/lib", "/lib32", "/lib64", "/bin", "/sbin")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A program, and what it may see."""

    argv: Sequence[str]
    user: User
    readable: Mapping[Path, str] = field(default_factory=dict)
    """Paths of this machine, and where the program sees them."""
    writable: Mapping[Path, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files in memory that only the program sees, such as keys, by path."""
    env: Mapping[str, str] = field(default_factory=dict)
    has_network: bool = False
    pass_fds: Sequence[int] = ()
    """Descriptors that all processes of the run hold to their end."""


class Ended(NamedTuple):
    """How a run ended."""

    status: int
    said: str
    """Its last lines."""


def require(program: str, package: str) -> str:
    """Return the path of a program, or raise `BackupProgramMissing`."""
    found = shutil.which(program, path=os.defpath + ":/usr/local/bin:/usr/sbin:/sbin")
    if found is None:
        raise BackupProgramMissing(
            f"this machine has no {program}: its operator installs the package {package}"
        )
    return found


async def run(wanted: Run, each_line: Callable[[str], None] = lambda _line: None) -> Ended:
    """Run to the end; both streams are read by line. Cancelled, the run is killed."""
    async with started(wanted, stderr=asyncio.subprocess.STDOUT) as process:
        assert process.stdout is not None
        kept: deque[str] = deque(maxlen=_LAST_LINES)
        while line := await process.stdout.readline():
            text = line.decode(errors="replace").rstrip()
            if text:
                kept.append(text[:_MOST_LINE])
                each_line(text)
        status = await process.wait()
        if words := ended_by(status):
            kept.append(words)
            each_line(words)
        return Ended(status, "\n".join(kept))


def ended_by(status: int) -> str:
    """Return which signal ended a program, in words; nothing if none did.

    `bwrap` adds 128 to the signal that ended its program.
    """
    number = -status if status < 0 else status - _BY_SIGNAL
    return f"it was ended by signal {number}" if 0 < number < _SIGNALS else ""


@asynccontextmanager
async def started(
    wanted: Run, *, stdin: int = asyncio.subprocess.DEVNULL, stderr: int
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a program and yield it; it is killed at the end of the block."""
    with ExitStack() as opened:
        uid, gid = wanted.user or (os.geteuid(), os.getegid())
        # Programs ask for the name of their user; those of the machine are none of their business.
        named = {"/etc/passwd": f"run:x:{uid}:{gid}::/:/bin/false\n".encode()}
        contents = named | dict(wanted.files)
        files = {path: _in_memory(opened, content) for path, content in contents.items()}
        options, inner = _confined(wanted, files)
        # No argument: all users of the machine see those.
        words = _in_memory(opened, b"".join(f"{each}\0".encode() for each in options))
        process = await asyncio.create_subprocess_exec(
            *(
                "nice",
                "-n",
                "10",
                "prlimit",
                f"--as={_MEMORY}",
                "--core=0",
                "bwrap",
                "--args",
                str(words),
                "--",
                *inner,
            ),
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env={},
            limit=_LIMIT,
            pass_fds=(*wanted.pass_fds, *files.values(), words),
        )
    try:
        yield process
    except ValueError as error:  # of `readline`
        raise BackupFailed(f"{Path(wanted.argv[0]).name} said what is no line of text") from error
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _in_memory(opened: ExitStack, content: bytes) -> int:
    """Return a descriptor from which content is read."""
    descriptor = os.memfd_create("file")
    opened.callback(os.close, descriptor)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _confined(wanted: Run, files: Mapping[str, int]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the options that confine a program, and the program (bwrap(1), setpriv(1))."""
    options = [
        *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup"),
        *("--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"),
        *_system(),
        *_mounts(wanted, files),
    ]
    if not wanted.has_network:
        options.append("--unshare-net")
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", **wanted.env}
    for name, value in environment.items():
        options += ["--setenv", name, value]
    options += ["--unshare-user"] if wanted.user is None else AS_ROOT
    return options, as_user(wanted.user, wanted.argv)


def _system() -> Iterator[str]:
    """Yield the mounts of the programs and libraries of the machine."""
    yield from ("--ro-bind", "/usr", "/usr")
    for name in _SYSTEM:
        path = Path(name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), name)
        elif path.is_dir():
            yield from ("--ro-bind", name, name)
    yield from ("--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/tmp")  # noqa: S108 - the run's own


def _mounts(wanted: Run, files: Mapping[str, int]) -> Iterator[str]:
    """Yield what the run is given; folders above it would be root's alone if not made first."""
    for there in (*_ETC, *wanted.readable.values(), *wanted.writable.values(), *files):
        for folder in [*Path(there).parents][-2::-1]:
            yield from ("--perms", "0755", "--dir", str(folder))
    for file in _ETC:
        yield from ("--ro-bind-try", file, file)
    for how, folders in (("--ro-bind", wanted.readable), ("--bind", wanted.writable)):
        for here, there in folders.items():
            yield from (how, str(here), there)
    for there, descriptor in files.items():
        yield from ("--perms", "0444", "--ro-bind-data", str(descriptor), there)

"""Confine servers, and programs that read untrusted files, by bubblewrap.

Each runs in namespaces of its own, and sees only the machine's programs, read-only, and the folders
passed to it. If the service is root, each server has a user id of its own, which owns the server's
files and nothing else. Otherwise a server runs as the service's user, in a user namespace. A
program, unlike a server, ends with this process, even when that is killed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from cloudcore.databases.archive.driver import BackupFailed, BackupProgramMissing
from cloudcore.nodes.control_groups import MIB
from cloudcore.nodes.shim import INFO_FD, SECCOMP_FD

_INNER_ID: Final = 1000
"""The id that a server has in its own user namespace, without root."""
_WITHOUT_ROOT: Final = (
    *("--unshare-user", "--disable-userns", "--uid", str(_INNER_ID), "--gid", str(_INNER_ID)),
)
AS_ROOT: Final = ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
"""Capabilities of a command that switches to the server's user; that user has none."""
_PARENTS: Final = ("/usr", "/usr/share", "/etc")
_SEEN: Final = (
    *("/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64", "/usr/share/postgresql"),
    *("/usr/share/zoneinfo", "/etc/ld.so.cache"),
)
_SYSTEM: Final = ("/bin", "/sbin", "/lib", "/lib64")
_SCRATCH_MB: Final = 64
_ENVIRONMENT: Final = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/", "TZ": "UTC"}
_PORTS: Final = 65_536
_END_SECONDS: Final = 5
"""Maximum wait for the end of a killed program."""
User = tuple[int, int] | None
"""User and group id of a server. None if the service is not root: then it runs as the service."""


def confined(
    argv: Sequence[str],
    user: User,
    *,
    folders: Mapping[Path, str],
    files: Mapping[Path, str],
    shm_mb: int,
) -> Sequence[str]:
    """Return a shim's command: bubblewrap, which runs the program as its first process.

    The program may write into `folders` and read `files`; both map a path of this machine to the
    path that the program sees. The options of bwrap are in the order in which it mounts (bwrap(1)).
    """
    options = (
        *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup"),
        *("--hostname", "database", "--new-session", "--clearenv", "--cap-drop", "ALL"),
        *(_WITHOUT_ROOT if user is None else AS_ROOT),
        *(part for name in _PARENTS for part in ("--perms", "0755", "--dir", name)),
        *(part for name in _SEEN for part in ("--ro-bind-try", name, name)),
        *(part for name in _SYSTEM for part in _system(name)),
        *("--proc", "/proc", "--dev", "/dev"),
        *_tmpfs("/dev/shm", shm_mb),  # noqa: S108 - the server's own
        *_tmpfs("/tmp", _SCRATCH_MB),  # noqa: S108 - as above
        *(part for here, there in folders.items() for part in ("--bind", str(here), there)),
        *(part for here, there in files.items() for part in ("--ro-bind", str(here), there)),
        *(part for each in _ENVIRONMENT.items() for part in ("--setenv", *each)),
        *("--chdir", "/", "--as-pid-1", "--seccomp", str(SECCOMP_FD), "--info-fd", str(INFO_FD)),
    )
    return ("bwrap", *options, "--", *_as_user(user, argv))


def _system(name: str) -> Sequence[str]:
    if Path(name).is_symlink():
        return ("--symlink", str(Path(name).readlink()), name)
    return ("--ro-bind-try", name, name)


def _tmpfs(name: str, size_mb: int) -> Sequence[str]:
    return ("--perms", "1777", "--size", str(size_mb * MIB), "--tmpfs", name)


def _as_user(user: User, argv: Sequence[str]) -> Sequence[str]:
    """Return a command that switches to a user and then runs a program (setpriv(1)).

    If `user` is None, it only runs the program.
    """
    if user is None:
        return argv
    ids = (f"--reuid={user[0]}", f"--regid={user[1]}", "--clear-groups")
    return ("setpriv", *ids, "--no-new-privs", "--", *argv)


def password_line(user: User) -> str:
    """Return the `/etc/passwd` line (passwd(5)) for the user of a server."""
    uid, gid = user or (_INNER_ID, _INNER_ID)
    return f"postgres:x:{uid}:{gid}::/:/usr/sbin/nologin\n"


def user_of(first_uid: int, offset: int) -> User:
    """Return (user id, group id) for the server with the port `offset` above the first port.

    Return None if the service is not root. A server stays on its port when the operator changes the
    range, so `offset` may be negative; the server then gets one of the last ids.
    """
    uid = first_uid + offset % _PORTS
    return (uid, uid) if os.geteuid() == 0 else None


_LAST_LINES: Final = 6
_MOST_LINE: Final = 500
_LIMIT: Final = 32 << 20
"""Bytes of a line of output: pgBackRest lists all backups on one line, with their dependencies."""
_BY_SIGNAL: Final = 128
_SIGNALS: Final = 65
_MEMORY: Final = 4 << 30
"""Bytes of address space of a program, as its untrusted input may make it fill the memory."""
_ETC: Final = ("/etc/ld.so.cache", "/etc/localtime")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfinedProgram:
    """A program to run, and the files that it may access."""

    argv: Sequence[str]
    user: User
    readable: Mapping[Path, str] = field(default_factory=dict)
    """Maps paths of this machine to the paths that the program sees."""
    writable: Mapping[Path, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files in memory that only the program sees, such as keys, by path."""
    env: Mapping[str, str] = field(default_factory=dict)
    has_network: bool = False
    pass_fds: Sequence[int] = ()
    """Descriptors that all processes of the run inherit and hold until they end."""


class ProgramResult(NamedTuple):
    """The exit status and output of a run."""

    status: int
    said: str
    """Its last lines."""


def require(program: str, package: str) -> str:
    """Return the path of a program, or raise `BackupProgramMissing` with the package to install."""
    found = shutil.which(program, path=os.defpath + ":/usr/local/bin:/usr/sbin:/sbin")
    if found is None:
        raise BackupProgramMissing(
            f"this machine has no {program}: its operator installs the package {package}"
        )
    return found


async def run(
    wanted: ConfinedProgram, each_line: Callable[[str], None] = lambda _line: None
) -> ProgramResult:
    """Run a program to its end; return the exit status and the last lines of output.

    `each_line` is called with each line. If this is cancelled, the program is killed.
    """
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
        return ProgramResult(status, "\n".join(kept))


def ended_by(status: int) -> str:
    """Return a phrase that names the signal that ended a program; empty if no signal did.

    `bwrap` exits with 128 plus the signal that ended its program.
    """
    number = -status if status < 0 else status - _BY_SIGNAL
    return f"it was ended by signal {number}" if 0 < number < _SIGNALS else ""


@asynccontextmanager
async def started(
    wanted: ConfinedProgram, *, stdin: int = asyncio.subprocess.DEVNULL, stderr: int
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a program and yield its process; kill it at the end of the block.

    If the block reads a line that is too long, raise `BackupFailed`.
    """
    with ExitStack() as opened:
        uid, gid = wanted.user or (os.geteuid(), os.getegid())
        # Programs look up the name of their user; they need not see the other users of the machine.
        named = {"/etc/passwd": f"run:x:{uid}:{gid}::/:/bin/false\n".encode()}
        contents = named | dict(wanted.files)
        files = {path: _in_memory(opened, content) for path, content in contents.items()}
        options, inner = _confined(wanted, files)
        # The options are not arguments: all users of the machine can see arguments.
        words = _in_memory(opened, b"".join(f"{each}\0".encode() for each in options))
        process = await asyncio.create_subprocess_exec(
            *("nice", "-n", "10", "prlimit", f"--as={_MEMORY}", "--core=0"),
            *("bwrap", "--args", str(words), "--", *inner),
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env={},
            limit=_LIMIT,
            pass_fds=(*wanted.pass_fds, *files.values(), words),
            start_new_session=True,
        )
    try:
        yield process
    except ValueError as error:  # of `readline`
        raise BackupFailed(f"{Path(wanted.argv[0]).name} said what is no line of text") from error
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        # What bwrap was just about to start may outlive it and hold the pipes, which `wait` awaits.
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()


def _in_memory(opened: ExitStack, content: bytes) -> int:
    """Return a file descriptor from which `content` can be read."""
    descriptor = os.memfd_create("file")
    opened.callback(os.close, descriptor)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _confined(
    wanted: ConfinedProgram, files: Mapping[str, int]
) -> tuple[Sequence[str], Sequence[str]]:
    """Return bwrap's options to confine a program, and its command (bwrap(1), setpriv(1))."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", **wanted.env}
    options = (
        *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup"),
        *("--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"),
        *("--ro-bind", "/usr", "/usr"),
        *(part for name in (*_SYSTEM, "/lib32") for part in _system(name)),
        *("--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/tmp"),  # noqa: S108 - the run's own
        *_mounts(wanted, files),
        *(() if wanted.has_network else ("--unshare-net",)),
        *(part for each in environment.items() for part in ("--setenv", *each)),
        *(("--unshare-user",) if wanted.user is None else AS_ROOT),
    )
    return options, _as_user(wanted.user, wanted.argv)


def _mounts(wanted: ConfinedProgram, files: Mapping[str, int]) -> Iterator[str]:
    """Yield the options that mount the files and folders of a run.

    The parent folders are made first: bwrap itself would make them accessible only to root.
    """
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

"""The commands that confine a server and the programs beside it, by bubblewrap.

As root, a server has a user id of its own, which owns its files and nothing else. Without root it
acts as the service's user, in a user namespace in which nothing else is mounted. Either way it sees
the programs of the machine and its own folders, in namespaces of its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from cloudcore.nodes.control_groups import MIB
from cloudcore.nodes.keeper import INFO_FD, SECCOMP_FD

_INNER_ID: Final = 1000
"""The id that a server has in its own user namespace, without root."""
_WITHOUT_ROOT: Final = (
    *("--unshare-user", "--disable-userns", "--uid", str(_INNER_ID), "--gid", str(_INNER_ID)),
)
AS_ROOT: Final = ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
"""To become the server's user, who has none."""
_PARENTS: Final = ("/usr", "/usr/share", "/etc")
_SEEN: Final = (
    *("/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64", "/usr/share/postgresql"),
    *("/usr/share/zoneinfo", "/etc/ld.so.cache"),
)
_SYSTEM: Final = ("/bin", "/sbin", "/lib", "/lib64")
_SCRATCH_MB: Final = 64
_ENVIRONMENT: Final = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/", "TZ": "UTC"}
_PORTS: Final = 65_536
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
    """Return what a keeper runs: bubblewrap with a program, which is its first process.

    The program may write into `folders` and read `files`, each with its path for the program. The
    options of bwrap are in the order in which it mounts (bwrap(1)).
    """
    options = (
        *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup"),
        *("--hostname", "database", "--new-session", "--clearenv", "--cap-drop", "ALL"),
        *(_WITHOUT_ROOT if user is None else AS_ROOT),
        *(part for name in _PARENTS for part in ("--perms", "0755", "--dir", name)),
        *(part for name in _SEEN for part in ("--ro-bind-try", name, name)),
        *(part for name in _SYSTEM for part in _system(name)),
        *("--proc", "/proc", "--dev", "/dev"),
        *_in_memory("/dev/shm", shm_mb),  # noqa: S108 - the server's own
        *_in_memory("/tmp", _SCRATCH_MB),  # noqa: S108 - as above
        *(part for here, there in folders.items() for part in ("--bind", str(here), there)),
        *(part for here, there in files.items() for part in ("--ro-bind", str(here), there)),
        *(part for each in _ENVIRONMENT.items() for part in ("--setenv", *each)),
        *("--chdir", "/", "--as-pid-1", "--seccomp", str(SECCOMP_FD), "--info-fd", str(INFO_FD)),
    )
    return ("bwrap", *options, "--", *as_user(user, argv))


def _system(name: str) -> Sequence[str]:
    if Path(name).is_symlink():
        return ("--symlink", str(Path(name).readlink()), name)
    return ("--ro-bind-try", name, name)


def _in_memory(name: str, size_mb: int) -> Sequence[str]:
    return ("--perms", "1777", "--size", str(size_mb * MIB), "--tmpfs", name)


def as_user(user: User, argv: Sequence[str]) -> Sequence[str]:
    """Return the command of a program in bubblewrap that has become another user (setpriv(1))."""
    if user is None:
        return argv
    ids = (f"--reuid={user[0]}", f"--regid={user[1]}", "--clear-groups")
    return ("setpriv", *ids, "--no-new-privs", "--", *argv)


def password_line(user: User) -> str:
    """Return the line of `/etc/passwd` (passwd(5)) with the user of a server."""
    uid, gid = user or (_INNER_ID, _INNER_ID)
    return f"postgres:x:{uid}:{gid}::/:/usr/sbin/nologin\n"


def user_of(first_uid: int, offset: int) -> User:
    """Return the ids of the server of a port, counted from the first port; None without root.

    A server keeps its port when the operator changes the range: one below it has the last ids.
    """
    uid = first_uid + offset % _PORTS
    return (uid, uid) if os.geteuid() == 0 else None

"""The user namespace of an instance, for what the kernel counts for each user.

What it counts, as instances of inotify and bytes of message queues, counts for who made the
namespace too (`user_namespaces(7)`, `/proc/sys/user`): so no two are made by the same user, and
none by the machine's root, who would have nothing left when an instance takes all.
"""

from __future__ import annotations

import ctypes
import os
import resource
import socket
from pathlib import Path
from typing import Final, NamedTuple

from cloudcore.compute.keeper.network import LIBC

USERS_FD: Final = 104
"""The descriptor by which the namespace is known, in the keeper and its children."""
SHARED_WATCHERS: Final = 32
"""Instances of inotify, of the 128 that Linux gives to the user whom all instances are."""
SHARED_QUEUE_BYTES: Final = 200_000
"""Of message queues, of 819,200: two queues of ten messages of 8 KiB."""
_RLIMIT_MSGQUEUE: Final = 12  # the library of Python has no name for it
_CLONE_NEWUSER: Final = 0x10000000
_PR_SET_SECUREBITS, _NO_SETUID_FIXUP = 28, 1 << 2


class Users(NamedTuple):
    """A user namespace to make."""

    maker: int
    """Who makes it: an id that no user of the machine has."""
    first: int
    """The id here of who is 0 in it."""
    ids: int


def hold_users(users: Users) -> None:
    """Make a user namespace, which takes root, and keep it as `USERS_FD`."""
    own, childs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        _make(users.maker, childs)
    childs.close()
    with own:
        said, descriptors, _, _ = socket.recv_fds(own, 200, 1)
        try:
            if not descriptors:
                raise OSError(f"user namespace: {said.decode()}")
            os.dup2(descriptors[0], USERS_FD, inheritable=False)
            os.close(descriptors[0])
            for which in ("uid_map", "gid_map"):
                Path(f"/proc/{pid}/{which}").write_text(f"0 {users.first} {users.ids}", "ascii")
        finally:
            own.shutdown(socket.SHUT_RDWR)
            os.waitpid(pid, 0)


def bound_share() -> None:
    """Leave most of what this user may have to other instances, where all are made by one user."""
    Path("/proc/sys/user/max_inotify_instances").write_text(str(SHARED_WATCHERS), "ascii")
    hard = resource.getrlimit(_RLIMIT_MSGQUEUE)[1]
    most = SHARED_QUEUE_BYTES if hard == resource.RLIM_INFINITY else min(SHARED_QUEUE_BYTES, hard)
    resource.setrlimit(_RLIMIT_MSGQUEUE, (most, most))


def _make(maker: int, told: socket.socket) -> None:
    """Make a namespace as another user, tell who waits, and end when it needs it no more."""
    try:
        LIBC.prctl(_PR_SET_SECUREBITS, _NO_SETUID_FIXUP)  # some kernels ask for CAP_SYS_ADMIN
        os.seteuid(maker)
        if LIBC.unshare(_CLONE_NEWUSER) != 0:
            told.send(os.strerror(ctypes.get_errno()).encode())
        else:
            socket.send_fds(told, [b"made"], [os.open("/proc/self/ns/user", os.O_RDONLY)])
            told.recv(1)
    finally:
        os._exit(0)

"""The namespaces of an instance: its network, with a link to the shim's own, and its users.

The metadata service is at the shim's end of that link, so port 80 is free for the instance's
program on all its addresses. Nothing else listens at that end, and nothing is routed further: over
the link an instance reaches neither other instances nor the machine, and neither of them reaches
the metadata service.

The kernel limits some resources for each user, such as instances of inotify and bytes of message
queues, and also charges them to the user who created the namespace (`user_namespaces(7)`,
`/proc/sys/user`). So each user namespace is created by a different user and never by the machine's
root, whose limits an instance could otherwise exhaust.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from cloudcore.compute.metadata_server import ADDRESS, PORT
from cloudcore.nodes.shim import run

INSTANCE_FD: Final = 100
"""The descriptor of the instance's network namespace, in the shim and its children."""
_NEAR: Final = "169.254.169.253"
"""The instance's end of the link."""
_CLONE_NEWNET: Final = 0x40000000
LIBC: Final = ctypes.CDLL(None, use_errno=True)


def separate() -> None:
    """Leave this process's new network namespace to the instance, enter another, and link both.

    The instance's namespace has its own loopback, and its programs may listen on any port.
    """
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    os.dup2(own, INSTANCE_FD, inheritable=False)
    os.close(own)
    Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").write_text("0", "ascii")
    run("ip", "link", "set", "lo", "up")
    _checked(LIBC.unshare(_CLONE_NEWNET))
    instance = f"/proc/self/fd/{INSTANCE_FD}"
    far = (
        f"link add instance0 type veth peer name metadata0 netns {instance}",
        "link set instance0 addrgenmode none up",
        f"address add {ADDRESS}/32 dev instance0",
        f"route add {_NEAR}/32 dev instance0",
    )
    near = (
        "link set metadata0 addrgenmode none up",
        f"address add {_NEAR}/32 dev metadata0 scope link",
        f"route add {ADDRESS}/32 dev metadata0 src {_NEAR}",
    )
    # The link works only when both ends are up; each batch is one process.
    run("ip", "-batch", "-", text="\n".join(far), pass_fds=(INSTANCE_FD,))
    with in_instance():
        run("ip", "-batch", "-", text="\n".join(near))


@contextlib.contextmanager
def in_instance() -> Iterator[None]:
    """Enter the instance's namespace during the block, to make sockets there."""
    own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _checked(LIBC.setns(INSTANCE_FD, _CLONE_NEWNET))
        try:
            yield
        finally:
            _checked(LIBC.setns(own, _CLONE_NEWNET))
    finally:
        os.close(own)


def metadata_listener() -> socket.socket:
    """Return the metadata service's listening socket, in the instance's namespace."""
    return socket.create_server((ADDRESS, PORT))


def port_of_instance(port: int) -> socket.socket:
    """Begin to connect to a port of the instance's loopback; return the non-blocking socket."""
    with in_instance():
        made = socket.socket()
    made.settimeout(0)
    with contextlib.suppress(BlockingIOError):
        made.connect(("127.0.0.1", port))
    return made


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"network namespace: {os.strerror(number)}")


USERS_FD: Final = 104
"""The descriptor of the user namespace, in the shim and its children."""
SHARED_WATCHERS: Final = 32
"""Instances of inotify: a share of the 128 that Linux gives to the user as whom all instances
run."""
SHARED_QUEUE_BYTES: Final = 200_000
"""Bytes of message queues, a share of 819,200: two queues of ten messages of 8 KiB."""
_RLIMIT_MSGQUEUE: Final = 12  # the library of Python has no name for it
_CLONE_NEWUSER: Final = 0x10000000
_PR_SET_SECUREBITS, _NO_SETUID_FIXUP = 28, 1 << 2


class Users(NamedTuple):
    """A user namespace to make."""

    maker: int
    """The user id that makes the namespace; no user of the machine has it."""
    first: int
    """The id on the machine of user 0 in the namespace."""
    ids: int


def hold_users(users: Users) -> None:
    """Make a user namespace, which requires root, and hold it open as descriptor `USERS_FD`."""
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
    """Lower this user's limits for one instance: this user creates the namespaces of all."""
    Path("/proc/sys/user/max_inotify_instances").write_text(str(SHARED_WATCHERS), "ascii")
    hard = resource.getrlimit(_RLIMIT_MSGQUEUE)[1]
    most = SHARED_QUEUE_BYTES if hard == resource.RLIM_INFINITY else min(SHARED_QUEUE_BYTES, hard)
    resource.setrlimit(_RLIMIT_MSGQUEUE, (most, most))


def _make(maker: int, told: socket.socket) -> None:
    """Make a namespace as user `maker`, send its descriptor or an error to `told`, and exit.

    It exits after the other end of `told` is closed or shut down.
    """
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

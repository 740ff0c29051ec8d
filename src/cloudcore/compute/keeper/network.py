"""The network namespace of an instance, the keeper's own, and the link between the two.

The metadata service is at the far end of that link, so port 80 is the program's own on all its
addresses. Nothing else listens there, and nothing is routed further: no other instance, and not the
machine, can be reached over it, nor can they reach this service.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cloudcore.compute.metadata_server import ADDRESS, PORT
from cloudcore.nodes.keeper_commands import run

INSTANCE_FD: Final = 100
"""The descriptor by which the instance's namespace is known, in the keeper and its children."""
_NEAR: Final = "169.254.169.253"
"""The instance's end of the link."""
_CLONE_NEWNET: Final = 0x40000000
LIBC: Final = ctypes.CDLL(None, use_errno=True)


def separate() -> None:
    """Make this process's namespace, which must be new, the instance's; get another, and link them.

    The instance's has a loopback of its own, and its programs may listen on any port.
    """
    _hold(INSTANCE_FD)
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
    # The first is made whole only when both ends are up; each batch is one process.
    run("ip", "-batch", "-", text="\n".join(far), pass_fds=(INSTANCE_FD,))
    with in_instance():
        run("ip", "-batch", "-", text="\n".join(near))


@contextlib.contextmanager
def in_instance() -> Iterator[None]:
    """Be in the instance's namespace: what is made meanwhile belongs there."""
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
    """Return what listens where the instance looks for its metadata."""
    return socket.create_server((ADDRESS, PORT))


def port_of_instance(port: int) -> socket.socket:
    """Return a connection on its way to a port of the instance's loopback."""
    with in_instance():
        made = socket.socket()
    made.settimeout(0)
    with contextlib.suppress(BlockingIOError):
        made.connect(("127.0.0.1", port))
    return made


def _hold(number: int) -> None:
    opened = os.open("/proc/self/ns/net", os.O_RDONLY)
    os.dup2(opened, number, inheritable=False)
    os.close(opened)


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"network namespace: {os.strerror(number)}")

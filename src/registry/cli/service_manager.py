"""Tell the service manager (systemd, podman) that the server is ready: ``sd_notify(3)``."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping


def tell_ready(environment: Mapping[str, str] = os.environ) -> None:
    """Send ``READY=1`` to the socket that ``NOTIFY_SOCKET`` names, if a manager has set it.

    A manager that cannot be reached is no reason to stop serving: it notices by its own time limit.
    """
    address = environment.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):  # the abstract namespace of Linux
        address = f"\0{address[1:]}"
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender,
    ):
        sender.settimeout(0)
        sender.sendto(b"READY=1", address)

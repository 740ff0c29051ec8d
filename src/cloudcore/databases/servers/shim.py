"""The shim of a database server.

It enters a new network namespace, starts the server confined, and relays connections from the
machine's listener to the server's own loopback. It stops the server by SIGINT, a fast shutdown. At
the command ``reload``, it makes the server read its certificate again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import struct
from pathlib import Path
from typing import ClassVar, Final

from cloudcore.nodes.relays import Gate, serve_port
from cloudcore.nodes.shim import (
    CONTROL,
    SECCOMP_FD,
    SECCOMP_FILE,
    Program,
    Shim,
    run,
    run_shim,
    unix_listener,
)
from cloudcore.nodes.shim import start_by_bubblewrap as start

INPUT: Final = "input"
_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP: Final = 1


def main() -> None:
    """Run the shim of this folder's server until the server has ended."""
    run_shim(ServerShim, 0o077)


class ServerShim(Shim):
    """The shim of one server: its instructions (``order.json``), its processes and its state."""

    stop_signal: ClassVar[signal.Signals] = signal.SIGINT

    def prepare(self) -> None:
        """Start the server, then accept connections for it."""
        Path(self._order["shims"], "cgroup.procs").write_text("0", "ascii")
        # Without a /proc of its own here, none could be mounted inside (mount_namespaces(7)).
        run("mount", "-t", "proc", "proc", "/proc")
        _loopback_up()
        self.watch(unix_listener(CONTROL))
        self.start()
        listener = self._order["listener"]
        if listener is not None:
            accepting = socket.socket(fileno=listener)
            gate = Gate(self.loop, self._order["most"])
            serve_port(self.loop, gate, accepting, self._dial)

    def launch(self) -> Program:
        """Start the server, or another program on the server's data."""
        stdin = INPUT if self._order["has_input"] else os.devnull
        groups, files = self._order["groups"], {SECCOMP_FD: SECCOMP_FILE}
        return start(self._order["launch"], self._writer, groups, files=files, stdin=stdin)

    def obey(self, word: str) -> None:
        """At the word ``reload``, make the server reload its certificate; ignore other words."""
        if word == "reload":
            self.signal(signal.SIGHUP)

    def _dial(self) -> socket.socket:
        made = socket.socket()
        made.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            made.connect(("127.0.0.1", self._order["port"]))
        return made


def _loopback_up() -> None:
    """Bring up the loopback of this namespace (netdevice(7))."""
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))

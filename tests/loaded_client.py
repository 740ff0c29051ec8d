"""Stand in a script for ``python -m MODULE``, which `tests.loaded` has forked instead.

``python -I -S tests/loaded_client.py SOCKET MODULE …`` starts in a twentieth of the time. It passes
on SIGINT and SIGTERM, and ends as what was forked ends. Servers, and programs whose environment
counts as Python starts, take its place instead.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
from typing import Final

NUMBER: Final = struct.Struct("i")
"""An id of a process, or an exit status, in a pipe."""
_SERVERS: Final = ("serve", "dev")


def main(address: str, *words: str) -> None:
    """Run a module with its arguments."""
    started = None if set(words[1:2]) & {*_SERVERS} else _forked(address, words)
    if started is None:
        os.execv(sys.executable, [sys.executable, "-m", *words])
    pid, ending = started
    for sig in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sig, lambda received, _: os.kill(pid, received))
    (status,) = NUMBER.unpack(os.read(ending, NUMBER.size))
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def _forked(address: str, words: tuple[str, ...]) -> tuple[int, int] | None:
    """Return the id of the process and the pipe that tells its end; None if it was refused."""
    umask = os.umask(0)
    os.umask(umask)
    reading, writing = os.pipe()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        asking.connect(address)
        request = json.dumps([words, dict(os.environ), os.getcwd(), False, umask]).encode()  # noqa: PTH109 - pathlib is slow to load
        network = os.open("/proc/self/ns/net", os.O_RDONLY)
        socket.send_fds(asking, [request], [0, 1, 2, network, writing])
    os.close(writing)
    pid = os.read(reading, NUMBER.size)
    return (NUMBER.unpack(pid)[0], reading) if pid else None


if __name__ == "__main__":
    main(*sys.argv[1:])

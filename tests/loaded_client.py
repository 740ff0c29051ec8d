"""Stand in a script for ``python -m MODULE``, which `tests.loaded` has forked instead.

``python -I -S tests/loaded_client.py SOCKET MODULE …`` starts in a twentieth of the time. It passes
on SIGINT and SIGTERM, and ends as what was forked ends. Servers, which get other signals too, and
programs whose environment counts as Python starts take its place instead.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
from collections.abc import Mapping, Sequence

NUMBER = struct.Struct("i")
"""An id of a process, or an exit status, in a pipe."""
_SERVERS = ("serve", "dev")


def main(address: str, *words: str) -> None:
    """Run a module with its arguments."""
    started = None if words[1:2] and words[1] in _SERVERS else _forked(address, words)
    if started is None:
        os.execv(sys.executable, [sys.executable, "-m", *words])
    pid, status_pipe = started
    for sig in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sig, lambda received, _: os.kill(pid, received))
    (status,) = NUMBER.unpack(os.read(status_pipe, NUMBER.size))
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def _forked(address: str, words: tuple[str, ...]) -> tuple[int, int] | None:
    """Return the id of the process and the pipe of its status; None if it was refused."""
    umask = os.umask(0)
    os.umask(umask)
    reading, writing = os.pipe()
    network = os.open("/proc/self/ns/net", os.O_RDONLY)
    descriptors = struct.pack("5i", 0, 1, 2, network, writing)
    request = encoded(words, os.environ, os.getcwd(), umask=str(umask))  # noqa: PTH109 - pathlib is slow to load
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        asking.connect(address)
        asking.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
    os.close(writing)
    pid = os.read(reading, NUMBER.size)
    return (NUMBER.unpack(pid)[0], reading) if pid else None


def encoded(
    words: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    *,
    has_session: str = "",
    umask: str = "",
) -> bytes:
    """Return a request: its fields with NUL between them, which none of them can have."""
    variables = (f"{name}={value}" for name, value in env.items())
    fields = (has_session, umask, cwd, str(len(words)), *words, *variables)
    return b"\0".join(map(os.fsencode, fields))


if __name__ == "__main__":
    main(*sys.argv[1:])

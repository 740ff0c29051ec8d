"""Stand in a script for ``python -m MODULE``, which `tests.loaded` has forked instead.

``python -I -S tests/loaded_client.py SOCKET MODULE …`` starts in a twentieth of the time. It passes
on SIGINT and SIGTERM, and ends as what was forked ends. A program whose environment counts as
Python starts takes its place instead.

It imports only what is compiled into Python: `json`, `signal` and `typing` take four times as long
to load as all else that is done here.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import _socket as socket
import os
import struct
import sys
from _json import encode_basestring_ascii as _json_text

NUMBER = struct.Struct("i")
"""An id of a process, or an exit status, in a pipe."""


def main(address: str, *words: str) -> None:
    """Run a module with its arguments."""
    started = _forked(address, words)
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
    network = os.open("/proc/self/ns/net", os.O_RDONLY)
    descriptors = struct.pack("5i", 0, 1, 2, network, writing)
    asking = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asking.connect(address)
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)
    asking.sendmsg([_request(words, umask).encode()], [rights])
    asking.close()
    os.close(writing)
    pid = os.read(reading, NUMBER.size)
    return (NUMBER.unpack(pid)[0], reading) if pid else None


def _request(words: tuple[str, ...], umask: int) -> str:
    """Return the JSON of a request: words, environment, folder, has no session, umask."""
    said = ",".join(map(_json_text, words))
    env = ",".join(f"{_json_text(k)}:{_json_text(v)}" for k, v in os.environ.items())
    return f"[[{said}],{{{env}}},{_json_text(os.getcwd())},false,{umask}]"  # noqa: PTH109 - pathlib is slow to load


if __name__ == "__main__":
    main(*sys.argv[1:])

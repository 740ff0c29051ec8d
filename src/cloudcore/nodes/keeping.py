"""How a keeper, the process beside what outlives the service, is known and spoken to.

The kept process (`kept_process`) is `unshare`; its child is the keeper, the first process of a
process namespace, which ends with it. What is asked of a keeper is one line a connection.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Final

from cloudcore.nodes.kept_process import Kept

CONTROL: Final = "control"
"""The socket in the folder on which the keeper listens."""


class NoAnswer(Exception):
    """A keeper lives and does not answer in time."""


def is_known() -> bool:
    """Return True if the process that the service knows is this one's parent.

    If it is, this one is killed with it. It may have been killed before that was arranged.
    """
    parent = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[1]
    return Path("process").read_bytes().split()[0] == parent


def unix_listener(path: str) -> socket.socket:
    """Return a listener on a socket in this folder, whose whole path may be longer than one can."""
    Path(path).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    return listener


def ask(folder: Path, kept: Kept, line: str, seconds: float) -> None:
    """Send a line to a keeper, and wait for its answer, or its end.

    Raise `NoAnswer` if there is none in time, `OSError` if it does not listen.
    """
    end = time.monotonic() + seconds
    opened = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            while True:
                try:
                    connection.connect(f"/proc/self/fd/{opened}/{CONTROL}")
                    break
                except OSError:
                    if not kept.is_alive:
                        return
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.005)
            connection.settimeout(max(0.1, end - time.monotonic()))
            connection.sendall(f"{line}\n".encode())
            connection.recv(64)
    except TimeoutError as error:
        raise NoAnswer("its keeper does not answer") from error
    except ConnectionError:
        return  # it has ended
    finally:
        os.close(opened)

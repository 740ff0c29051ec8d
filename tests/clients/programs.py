"""Client programs: found, run to their end, their words at hand when they fail."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.tools import missing, require_tool


def require_root(name: str) -> None:
    """Skip (fail in CI) unless the test runs as root, which `name` needs."""
    if os.geteuid() != 0:
        missing(f"{name} needs root")


def run(*command: str | Path, env: Mapping[str, str] | None = None, stdin: bytes = b"") -> str:
    """Run `command` to its end and return what it printed; a failure carries its words."""
    done = attempt(*command, env=env, stdin=stdin)
    assert done.returncode == 0, f"{command} failed\n{done.stdout}\n{done.stderr}"
    return done.stdout


def attempt(
    *command: str | Path, env: Mapping[str, str] | None = None, stdin: bytes = b""
) -> subprocess.CompletedProcess[str]:
    """Run `command` to its end, whatever that is, with nothing of the caller's home."""
    done = subprocess.run(
        [require_tool(str(command[0])), *command[1:]],
        env={**os.environ, **(env or {})},
        input=stdin,
        capture_output=True,
        check=False,
        timeout=110,
    )
    return subprocess.CompletedProcess(
        command, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def takes_connections(path: Path) -> bool:
    """Return True if a daemon listens on a Unix socket: cheaper than starting a client to ask."""
    with socket.socket(socket.AF_UNIX) as asking:
        return asking.connect_ex(str(path)) == 0


@contextlib.contextmanager
def daemon(*command: str | Path, log: Path, ready: Callable[[], bool]) -> Iterator[None]:
    """Run a program of the background until the caller is done with it."""
    with log.open("wb") as target:
        process = subprocess.Popen(command, stdout=target, stderr=subprocess.STDOUT)
    try:
        until = time.monotonic() + 30
        while not ready():
            alive = process.poll() is None and time.monotonic() < until
            assert alive, f"{command[0]} did not start:\n{log.read_text()}"
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(30)

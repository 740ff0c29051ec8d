"""A real registry process for tests: started, found ready, stopped, its log at hand."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.loaded import ENTREPOT, ROOT, Program, can_be_forked, start_loaded

__all__ = ["READY", "ROOT", "LiveRegistry", "start_registry"]

READY = re.compile(r"(https?://127\.0\.0\.1:\d+)")


@dataclass
class LiveRegistry:
    """An ``entrepot`` process that answers on `url`."""

    url: str
    process: Program | subprocess.Popen[str]
    data: Path
    lines: list[str] = field(default_factory=list)
    reader: threading.Thread | None = None

    @property
    def port(self) -> int:
        """Return the TCP port the registry listens on."""
        return int(self.url.rsplit(":", 1)[1])

    @property
    def log(self) -> str:
        """Return all the process has printed so far."""
        return "\n".join(self.lines)

    def stop(self, sig: int = signal.SIGTERM, timeout: float = 35) -> int:
        """Send `sig` and return the exit status; a server that does not end is killed, loudly."""
        if self.process.poll() is None:
            self.process.send_signal(sig)
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        if self.reader is not None:
            self.reader.join(timeout)
        return status


def start_registry(
    data: Path,
    *options: str,
    command: str = "dev",
    env: Mapping[str, str] | None = None,
    timeout: float = 60,
    popen: Mapping[str, Any] | None = None,
    forks: bool = True,
    has_session: bool = False,
) -> LiveRegistry:
    """Start ``entrepot dev`` (or another `command`) over the folder `data`, on a free port.

    It `forks`, as `tests.loaded` says, and finds an empty database there, unless the program itself
    is to be started and to make it. `popen` has more arguments of `subprocess.Popen`, which forks
    nothing. It `has_session` of its own, or that of this process.
    """
    started = (command, "--port", "0", "--data", str(data), *options)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "PYTHONFAULTHANDLER": "1",
        **(env or {}),
    }
    if forks and not data.exists() and "ENTREPOT_DATABASE_URL" not in environment:
        from tests.databases import planted  # noqa: PLC0415 - a plugin, which pytest loads

        planted(data)
    process, stdout = (
        _forked(started, environment, has_session=has_session)
        if forks and popen is None and can_be_forked(environment)
        else _executed(started, environment, {"start_new_session": has_session, **(popen or {})})
    )
    registry = LiveRegistry("", process, data)
    ready = threading.Event()

    def collect() -> None:
        with stdout:
            for line in stdout:
                registry.lines.append(line.rstrip("\n"))
                found = READY.search(line)
                if found and not registry.url:
                    registry.url = found.group(1)
                    ready.set()
        ready.set()

    registry.reader = threading.Thread(target=collect, daemon=True)
    registry.reader.start()
    if not ready.wait(timeout) or not registry.url:
        process.send_signal(signal.SIGABRT)  # it says where each of its threads is
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()
        process.wait()
        registry.reader.join(5)
        raise RuntimeError(f"the registry did not start:\n{registry.log}")
    return registry


def _forked(
    arguments: Sequence[str], environment: Mapping[str, str], *, has_session: bool
) -> tuple[Program | subprocess.Popen[str], IO[str]]:
    reading, writing = os.pipe()
    try:
        with Path(os.devnull).open() as nothing:
            streams = (nothing.fileno(), writing, writing)
            process = start_loaded(
                ENTREPOT, arguments, environment, streams, ROOT, has_session=has_session
            )
    finally:
        os.close(writing)
    return process, os.fdopen(reading)


def _executed(
    arguments: Sequence[str], environment: Mapping[str, str], popen: Mapping[str, Any]
) -> tuple[Program | subprocess.Popen[str], IO[str]]:
    process: subprocess.Popen[str] = subprocess.Popen(
        [sys.executable, "-m", "registry", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env=environment,
        **popen,
    )
    assert process.stdout is not None
    return process, process.stdout

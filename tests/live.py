"""A real registry process for tests: started, found ready, stopped, its log at hand."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
READY = re.compile(r"(https?://127\.0\.0\.1:\d+)")


@dataclass
class LiveRegistry:
    """An ``entrepot`` process that answers on `url`."""

    url: str
    process: subprocess.Popen[str]
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
) -> LiveRegistry:
    """Start ``entrepot dev`` (or another `command`) over the folder `data`, on a free port.

    `popen` are more arguments of `subprocess.Popen`.
    """
    started = [sys.executable, "-m", "registry", command, "--port", "0", "--data", str(data)]
    process = subprocess.Popen(
        [*started, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **(env or {})},
        **(popen or {}),
    )
    registry = LiveRegistry("", process, data)
    ready = threading.Event()

    def collect() -> None:
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                registry.lines.append(line.rstrip("\n"))
                found = READY.search(line)
                if found and not registry.url:
                    registry.url = found.group(1)
                    ready.set()
        ready.set()

    registry.reader = threading.Thread(target=collect, daemon=True)
    registry.reader.start()
    if not ready.wait(timeout) or not registry.url:
        process.kill()
        process.wait()
        raise RuntimeError(f"the registry did not start:\n{registry.log}")
    return registry

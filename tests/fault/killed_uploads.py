"""A request through a worker of its own, which is killed in the middle of it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.loaded import start_worker

FIRST: Final = b"acknowledged " * 20
SECOND: Final = b"under way " * 20


def kill_at(step: str, url: str, folder: Path, location: str, method: str) -> None:
    """Send `SECOND` through a worker of its own and kill that at a step."""
    words = (url, str(folder), location, method, step)
    worker = start_worker("tests.fault.stopping_worker", *words, stdin=SECOND)
    try:
        assert worker.stdout.readline() == f"{step}\n"
    finally:
        worker.kill()

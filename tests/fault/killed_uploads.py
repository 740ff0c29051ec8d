"""A request through a worker of its own, which is killed in the middle of it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from tests.databases import program, program_environment

FIRST: Final = b"acknowledged " * 20
SECOND: Final = b"under way " * 20


def kill_at(step: str, url: str, folder: Path, location: str, method: str) -> None:
    """Send `SECOND` through a worker of its own and kill that at a step."""
    command = program("tests.fault.stopping_worker", url, str(folder), location, method, step)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=program_environment()
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(SECOND)
        process.stdin.close()
        assert process.stdout.readline() == f"{step}\n".encode()
        process.kill()

"""Launches a kept process and is killed on the way: `PLACE FOLDER PROGRAM…`."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cloudcore.nodes import detached_process
from tests.fault.deaths import die, die_at


def _die_once_launched(argv: Sequence[str], *, input: bytes, **_others: object) -> None:  # noqa: A002
    launcher = subprocess.Popen(argv, stdin=subprocess.PIPE)
    assert launcher.stdin is not None
    launcher.stdin.write(input)
    launcher.stdin.close()
    die()


def _main(place: str, folder: Path, argv: list[str]) -> None:
    if place == "start":
        subprocess.run = _die_once_launched  # type: ignore[assignment]
        detached_process.start(folder, argv, env=dict(os.environ))
    folder.mkdir(exist_ok=True)
    if place == "lock":
        fcntl.flock = die_at(1, fcntl.flock, after=True)
    if place == "name":
        os.replace = die_at(1, os.replace)
    if place == "named":
        os.replace = die_at(1, os.replace, after=True)
    if place == "exec":
        os.execve = die_at(1, os.execve)
    detached_process.launch(folder, argv, dict(os.environ), None)


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])

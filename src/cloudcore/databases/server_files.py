"""Files of the service in the folder of a database server, and what is read of its output."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

from cloudcore.databases.confinement import User

_FATAL: Final = (" FATAL: ", " PANIC: ", " ERROR: ")


def settle(made: Path, place: Path) -> None:
    """Give a whole folder its name, so that it is there after a loss of power too."""
    made.rename(place)
    folder = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_file(path: Path, content: bytes, mode: int, owner: User = None) -> None:
    """Write a file whole."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(file, content)
        os.fchmod(file, mode)
        if owner is not None:
            os.fchown(file, *owner)
    finally:
        os.close(file)
    new.replace(path)


def written_at(path: Path) -> int:
    """Return when a file was written, in microseconds since the epoch; 0 if it is not there."""
    try:
        return path.stat().st_mtime_ns // 1000
    except FileNotFoundError:
        return 0


def read_json(path: Path) -> dict[str, Any]:
    """Return what a file of ours says; nothing if it is not there, or torn."""
    try:
        found = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def last_lines(said: str) -> str:
    """Return why a program ended, by what it wrote: what was fatal, or else its last lines."""
    lines = said.strip().splitlines()
    fatal = [each for each in lines if any(word in each for word in _FATAL)]
    return " / ".join((fatal or lines)[-3:])[-500:]

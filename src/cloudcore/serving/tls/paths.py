"""Paths of the server's certificate and key. Cheap to import, as settings import it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class TlsFiles(NamedTuple):
    """The PEM files of a server: its certificate, followed by its issuers', and its key."""

    certificate: Path
    key: Path

    def find_version(self) -> object:
        """Return a value that changes when a file changes, or None while a file is missing."""
        try:
            found = [file.stat() for file in self]
        except OSError:
            return None
        return tuple((each.st_ino, each.st_size, each.st_mtime_ns) for each in found)

"""What the descriptors of this process are open on."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path


def list_open(folder: Path | None = None) -> Counter[str]:
    """Return what is open in a folder, or without one anywhere, and by how many descriptors.

    Compare what is open, not how much: what an earlier test has left may be closed meanwhile, so
    `list_open() - before` is what is left behind.
    """
    found, within = Counter[str](), str(folder or "")
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            found[str(each.readlink())] += 1
    return Counter({name: found[name] for name in found if name.startswith(within)})

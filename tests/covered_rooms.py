"""Print the share of lines and branches that the tests ran, by room.

It reads what ``coverage json`` writes: ``coverage json -q -o - | python -m tests.covered_rooms``.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any


def shares(files: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    """Yield each room with the share of its lines and branches that were run, in percent."""
    wanted: Counter[str] = Counter()
    ran: Counter[str] = Counter()
    for name, file in files.items():
        summary = file["summary"]
        for room in (_room(PurePath(name)), "all"):
            wanted[room] += summary["num_statements"] + summary["num_branches"]
            ran[room] += summary["covered_lines"] + summary["covered_branches"]
    for room in sorted(wanted):
        yield room, 100 * ran[room] / max(1, wanted[room])


def _room(file: PurePath) -> str:
    """Return the package of a file, at most two deep."""
    root = file.parts.index("src") + 1
    return "/".join(file.parts[root : min(root + 2, len(file.parts) - 1)])


if __name__ == "__main__":
    for room, share in shares(json.load(sys.stdin)["files"]):
        sys.stdout.write(f"{room:28}{share:6.1f} %\n")

"""Where data of servers are kept that run no more: of deleted clusters, and of unknown ones.

A cluster that no row knows may have been made after the backup that the database was restored from.
So nothing but the operator deletes its data.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from cloudcore.databases.restored_data import remove_tree

GRAVES: Final = ".graves"
"""The folder of data of deleted clusters, which are kept for a day."""
UNKNOWN: Final = ".unknown"
"""The folder of all that there is of clusters without a row: WAL that no bucket has yet, too."""
_GRAVE_SECONDS: Final = 24 * 3600


def keep(folder: Path, kept: Path) -> bool:
    """Move what there is of a server to a folder that keeps such; return False if it has no data.

    Of a deleted cluster that is the data alone.
    """
    data = folder / "data"
    if not data.exists():
        return False
    kept.mkdir(mode=0o700, exist_ok=True)
    (folder if kept.name == UNKNOWN else data).rename(kept / f"{folder.name}-{time.time_ns()}")
    return True


def bury(base: Path) -> None:
    """Delete data of deleted clusters that were kept for a day."""
    with suppress(FileNotFoundError):
        for each in (base / GRAVES).iterdir():
            since = int(each.name.rpartition("-")[2])
            if time.time_ns() - since > _GRAVE_SECONDS * 10**9:
                remove_tree(each)

"""A process that is killed in the middle of an upgrade, a seal run, a rewrap or a shredding.

``python -m tests.fault.key_run_worker migrate URL NUMBER`` dies at that change of the schema;
``… seal URL FOLDER STEP``, ``… rewrap URL FOLDER STEP`` and ``… shred URL FOLDER STEP`` at a step.
It kills itself.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from alembic import op

from cloudcore.jobs.background import running
from cloudcore.jobs.worker import JobPace, JobWorker
from registry.blobstore.disk.store import FilesystemStore
from registry.gc import data_keys, object_sealing
from registry.metadata.collector import erasure
from registry.metadata.database import migrate
from registry.services.blobs import rewrapping
from tests.fault.deaths import die_at
from tests.keyed_registry import open_keyed_registry

PORTION = 3
"""Uses that a transaction of the killed rewrap moves."""

SHRED_STEPS: Final[Mapping[str, tuple[ModuleType, str, bool, int]]] = {
    "before the first batch": (data_keys, "erase_wraps", False, 1),
    "before bytes are shredded": (erasure, "shred_unreadable", False, 1),
    "after bytes are shredded": (erasure, "shred_unreadable", True, 1),
    "before a batch is committed": (data_keys, "erase_wraps", True, 1),
    "between two batches": (data_keys, "erase_wraps", False, 2),
    "before the quarantine": (data_keys, "erase_quarantined_wraps", False, 1),
    "in the quarantine": (data_keys, "erase_quarantined_wraps", True, 1),
}
"""Where the killed process dies: before or after a call of a function, the first or the second."""


def _migrate(url: str, number: int) -> None:
    counted = die_at(number, lambda: None)

    def counting(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            counted()
            return call(*arguments, **options)

        return wrapped

    for name in ("add_column", "execute", "create_index", "create_table", "create_foreign_key"):
        setattr(op, name, counting(getattr(op, name)))
    migrate(url)


async def _seal(url: str, folder: Path, step: str) -> None:
    place = {
        "in a copy": ("_next", False, 2),
        "after a copy": ("_copy", True, 2),
        "before the rows": ("_switch", False, 2),
        "after the rows": ("_switch", True, 2),
    }[step]
    name, after, number = place
    setattr(object_sealing, name, die_at(number, getattr(object_sealing, name), after=after))
    with closing(FilesystemStore(folder)) as store:
        async with open_keyed_registry(url, store) as keyed:
            await keyed.seal()


async def _rewrap(url: str, folder: Path, step: str) -> None:
    rewrapping.PORTION = PORTION  # type: ignore[misc]
    write = rewrapping._write
    rewrapping._write = die_at(2, write, after=step == "after the rows")
    with closing(FilesystemStore(folder)) as store:
        async with open_keyed_registry(url, store) as keyed:
            pace = JobPace(poll_seconds=0.05)
            kind = rewrapping.rewrap_kind(keyed.ctx)
            async with running(JobWorker(keyed.database, [kind], pace=pace)):
                await asyncio.Event().wait()


async def _shred(url: str, folder: Path, step: str) -> None:
    module, name, after, number = SHRED_STEPS[step]
    setattr(module, name, die_at(number, getattr(module, name), after=after))
    data_keys._BATCH = 2  # type: ignore[misc]
    with closing(FilesystemStore(folder)) as store:
        async with open_keyed_registry(url, store) as keyed:
            await data_keys.shred_deleted_keys(keyed.ctx)


if __name__ == "__main__":
    what, url_, *rest = sys.argv[1:]
    if what == "migrate":
        _migrate(url_, int(rest[0]))
    else:
        run = {"seal": _seal, "rewrap": _rewrap, "shred": _shred}[what]
        asyncio.run(run(url_, Path(rest[0]), rest[1]))

"""Commit to a registry's database at a steady rate, elsewhere than what clients read.

    python -m benchmarks.committer URL REPOSITORY

Each commit is durable, and counts up the revision of REPOSITORY, as a push or a moved tag does. It
is a process of its own, as another node or a command would be, so that its processor time does not
count as the server's.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

COMMITS_PER_SECOND: Final = 100


async def commit_for_ever(url: str, name: str) -> None:
    """Commit, and print a line after the first time."""
    from sqlalchemy import bindparam, text  # noqa: PLC0415 - the benchmark itself needs no driver

    from cloudcore.db.base import Connection  # noqa: PLC0415
    from cloudcore.db.opening import open_database  # noqa: PLC0415
    from cloudcore.db.statement import Statement  # noqa: PLC0415
    from registry.metadata.tables import repositories  # noqa: PLC0415

    count_up = Statement(
        repositories.update()
        .where(repositories.c.name == bindparam("wanted"))
        .values(revision=repositories.c.revision + text("1"))
    )

    def change(connection: Connection) -> None:
        if not connection.execute(count_up, wanted=name):
            raise LookupError(name)

    database = open_database(url)
    await database.write(change)
    print("committing", flush=True)
    begun = time.monotonic()
    done = 0
    while True:
        done += 1
        await asyncio.sleep(begun + done / COMMITS_PER_SECOND - time.monotonic())
        await database.write(change)


@contextmanager
def committing(url: str, name: str) -> Iterator[None]:
    """Commit to the database at `url` during the block; `name` is a repository without account."""
    command = [sys.executable, "-m", "benchmarks.committer", url, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            if not process.stdout.readline():
                raise OSError(f"{command} ended at once")
            yield
            if process.poll() is not None:
                raise OSError(f"{command} ended meanwhile")
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(commit_for_ever(*sys.argv[1:]))

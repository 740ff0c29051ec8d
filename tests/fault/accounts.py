"""A process that writes and says what was answered.

    python -m tests.fault.accounts URL CALLERS ANSWERS
    python -m tests.fault.accounts

Each change writes two rows, so that half a change would be seen. On standard output, a line for
each answer: ``kept HANDLE`` or ``refused HANDLE``. It ends after so many answers; 0: never.
A quarter of the changes is relaxed, told by the handle (`is_relaxed`).

Without arguments, each line of the standard input, ``URL CALLERS ANSWERS OUTPUT``, begins such a
process, whose id is answered: to start Python anew would take most of a second.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
import uuid

from cloudcore.db.base import Connection, Database
from cloudcore.db.statement import Statement
from cloudcore.errors import Unavailable
from registry.metadata.tables import repositories
from tests.databases import add_account, with_database

_ADD_REPOSITORY = Statement(repositories.insert())


def store(connection: Connection, handle: str) -> None:
    """Insert an account and its one repository."""
    account_id = add_account(connection, handle)
    connection.execute(
        _ADD_REPOSITORY,
        id=str(uuid.uuid4()),
        account_id=account_id,
        name=handle,
        description=None,
        tags="{}",
        tag_mutability="mutable",
        immutable_tag_exclusions="[]",
        source="user",
        is_sparse=False,
        image_count=0,
        tag_count=0,
        tagged_image_count=0,
        size_bytes=0,
        deleted_image_count=0,
        deleted_tag_count=0,
        revision=0,
        created_at=0,
        updated_at=0,
        deleted_at=None,
        deleted_by=None,
        deleted_by_source=None,
        restorable_until=None,
    )


def is_relaxed(handle: str) -> bool:
    """Say whether the change of `handle` did not have to wait for the disk."""
    return handle[0] in "0123"


def main(url: str, callers: str, answers: str) -> None:
    """Write from so many callers at once."""
    count = itertools.count()

    async def caller(database: Database) -> None:
        while int(answers) == 0 or next(count) < int(answers):
            handle = str(uuid.uuid4())
            write = database.write_relaxed if is_relaxed(handle) else database.write
            try:
                await write(store, handle)
            except Unavailable:
                os.write(1, f"refused {handle}\n".encode())
            else:
                os.write(1, f"kept {handle}\n".encode())

    async def scenario(database: Database) -> None:
        await asyncio.gather(*(caller(database) for _ in range(int(callers))))

    with_database(url, scenario)


def serve() -> None:
    """Fork for each line that asks for it."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    for line in sys.stdin:
        *arguments, output = line.split()
        child = os.fork()
        if child == 0:
            os.dup2(os.open(output, os.O_WRONLY), 1)
            main(*arguments)
            os._exit(0)
        os.write(1, f"{child}\n".encode())


if __name__ == "__main__":
    main(*sys.argv[1:]) if sys.argv[1:] else serve()

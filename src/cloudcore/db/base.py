"""The interface of the metadata database: run short functions, each in a transaction.

A change is a plain function over a `Connection`. The database decides where it runs: on SQLite in
the single writer thread, several changes per commit; on PostgreSQL in a pool of connections. After
a conflict, and if another change of the same commit fails, the change is run again from the
beginning. So a change must have no effect except on the database; its result is that of the last
run.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, TypeVar

from cloudcore.db.statement import Statement
from cloudcore.errors import Unavailable

P = ParamSpec("P")
T = TypeVar("T")
Row = tuple[Any, ...]


class Connection(Protocol):
    """Runs statements in one transaction; parameters are passed by name."""

    @property
    def joins_changes(self) -> bool:
        """Return True if one statement can make several changes, with ``WITH``.

        PostgreSQL can, which saves round trips. SQLite cannot; its statements need no round trips.
        """

    def row(self, statement: Statement, /, **parameters: object) -> Row | None:
        """Return the first row of a query, or None."""

    def rows(self, statement: Statement, /, **parameters: object) -> Sequence[Row]:
        """Return all rows of a query."""

    def execute(self, statement: Statement, /, **parameters: object) -> int:
        """Run a statement; return the number of rows it changed.

        Raise `ConstraintViolated` if a key, unique index or check failed; the whole change then
        fails.
        """

    def announce(self) -> None:
        """Call the database's listeners if this transaction commits."""


class ConstraintViolated(Exception):
    """A write violated a constraint.

    The message names the constraint or its columns, but no values.
    """


class OutcomeUnknown(Unavailable):
    """The connection broke during the commit: the change may be committed, now or later, or not.

    Until the database has decided, the changed rows are locked. But a change of one whole statement
    (`Statement.is_whole`) may not have locked its rows yet.
    """


class Large(Generic[P, T]):
    """Wraps a query that returns up to megabytes: it takes milliseconds, mostly for allocations.

    Where `Database.read` runs other queries on the event loop, it runs `Large` ones in a thread,
    one at a time; accounts take turns.
    """

    def __init__(self, account_id: str, query: Callable[Concatenate[Connection, P], T]) -> None:
        """Wrap `query`, which is run when it is the account's turn."""
        self.account_id = account_id
        self._query = query

    def __call__(self, tx: Connection, /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the query and return its result."""
        return self._query(tx, *args, **kwargs)


_MARK_BYTES: Final = 8


class CommitMark:
    """A number in memory shared between a process and its forks; create it before forking.

    Each `change` stores a random value, which differs from the previous one (except once in 2^64),
    however many processes change the number at once, and wherever one of them dies. Reading takes
    no lock and no system call; an aligned store of eight bytes is never half visible.
    """

    def __init__(self) -> None:
        self._cell = memoryview(mmap.mmap(-1, _MARK_BYTES)).cast("Q")

    def change(self) -> None:
        """Give the mark a new value."""
        self._cell[0] = int.from_bytes(os.urandom(_MARK_BYTES), "little")

    def value(self) -> int:
        """Return the current value."""
        return self._cell[0]


class Database(Protocol):
    """The metadata database of one process."""

    async def read(
        self, query: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `query` on committed data and return its result.

        Each statement sees all changes that returned before it began. Several statements do not
        share a snapshot: read what must be consistent in one statement. Wrap queries for megabytes
        in `Large`.
        """

    async def write(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `change` in its own transaction and return its result once it is durable.

        If `change` raises an exception, it is rolled back, and the exception is raised here.
        Conflicts between writers (PostgreSQL: deadlock, serialization) are retried.

        Raise `OutcomeUnknown` if it is unknown whether the change was committed.
        """

    async def write_relaxed(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `change` like `write`, but do not wait for the disk.

        The change survives a crash of the process, and a power failure if a later `write` has
        returned. Use this for rows whose loss costs a client at most a retry: a new session, a time
        of last use.
        """

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` on the event loop after each commit of a change that called `announce`.

        Changes of other processes are not reported. The listener is called before the change's
        caller resumes, and also if that caller was cancelled. It must be quick and must not raise.
        """

    def version(self) -> int | None:
        """Return a number that changes with each commit of any process, or None if it is unknown.

        If the number is equal before and after some reads, no commit became visible between them.
        On PostgreSQL that holds for the commits of processes that share a `CommitMark`; others are
        noticed a fraction of a second later (`postgresql_watch`). Only equality has a meaning: the
        number need not grow, and differs between processes. The call takes microseconds; make it on
        the event loop.
        """

    async def close(self) -> None:
        """Finish the accepted calls and close the connections."""

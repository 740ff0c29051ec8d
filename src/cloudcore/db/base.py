"""The seam to the metadata: short functions, run in a transaction by the database's own rules.

A change is a plain function over a `Connection`. The database decides where it runs: on SQLite in
the one writer thread, several changes to a commit; on PostgreSQL in a pool of held connections.
So a change may run more than once (after a conflict it is run again from its beginning): it has no
effect but on the database, and what it returns is what the last run returned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from cloudcore.db.statement import Statement
from cloudcore.errors import Unavailable

P = ParamSpec("P")
T = TypeVar("T")
Row = tuple[Any, ...]


class Connection(Protocol):
    """One transaction's way to the tables; parameters are given by name."""

    def row(self, statement: Statement, /, **parameters: object) -> Row | None:
        """Return the first row of a query, or None."""
        ...

    def rows(self, statement: Statement, /, **parameters: object) -> Sequence[Row]:
        """Return all rows of a query."""
        ...

    def execute(self, statement: Statement, /, **parameters: object) -> int:
        """Run a statement and return how many rows it changed.

        Raises:
            ConstraintViolated: a key, unique index or check refused it; the whole change fails.

        """
        ...

    def announce(self) -> None:
        """Have the database's listeners called if this change commits."""
        ...


class ConstraintViolated(Exception):
    """The database refused a write to keep one of its invariants.

    Its text names the constraint, or the columns it is over, and shows no value of them.
    """


class OutcomeUnknown(Unavailable):
    """The connection broke during the commit: the change is kept, or not, or will be in a while.

    Until that is decided, the rows it changed are locked.
    """


class Database(Protocol):
    """The metadata database of one process."""

    async def read(
        self, query: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Return what `query` finds in committed data.

        Each statement sees every change that was answered before it began. A query of several
        statements does not see one snapshot: what must be consistent is asked in one statement.
        """
        ...

    async def write(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `change` in a transaction of its own and return its result once it is durable.

        What `change` raises rolls it back and is raised here. Conflicts between writers
        (PostgreSQL: deadlock, serialization) are retried.

        Raises:
            OutcomeUnknown: the change may be kept or not.

        """
        ...

    async def write_relaxed(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `change` as `write` does, but do not wait for the disk.

        The change survives the death of the process, may be lost with the power, and is never
        lost when a later `write` was answered. For rows whose loss costs a client one retry:
        a new session, a time of last use.
        """
        ...

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` on the event loop whenever a change that announced itself has committed.

        Changes of other processes are not heard of. It is called before the change's caller goes
        on, also when that has stopped waiting; it must be quick and never fail.
        """
        ...

    async def close(self) -> None:
        """Finish what was accepted and release the connections."""
        ...

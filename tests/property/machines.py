"""Models whose rules are changes of a database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Concatenate, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from sqlalchemy import Table, delete

from cloudcore.db.base import Connection, Database, P
from cloudcore.db.opening import open_database
from cloudcore.db.statement import Statement
from tests.soak import times

T = TypeVar("T")


class DatabaseMachine(RuleBasedStateMachine):
    """A state machine with a database, and with an event loop of its own."""

    def __init__(self, url: str, *tables: Table) -> None:
        """Open the database, and empty these tables."""
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.database: Database = self.wait(_opened(url))
        self.write(_clear, tables)

    def wait(self, work: Awaitable[T]) -> T:
        """Return what some work returns."""
        return self.loop.run_until_complete(work)

    def write(
        self, change: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Make a change."""
        return self.wait(self.database.write(change, *args, **kwargs))

    def read(
        self, query: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Ask the database."""
        return self.wait(self.database.read(query, *args, **kwargs))

    def teardown(self) -> None:
        self.wait(self.database.close())
        self.loop.close()


def run_machine(make: Callable[[], RuleBasedStateMachine], walks: int, steps: int) -> None:
    """Run this many random walks; ``SOAK=20`` in the environment makes it twenty times as many."""
    run_state_machine_as_test(
        make,  # type: ignore[arg-type] # any factory will do
        settings=settings(
            max_examples=1 + times(walks),  # the first example is the simplest, and no walk
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


async def _opened(url: str) -> Database:
    return open_database(url)


def _clear(tx: Connection, tables: tuple[Table, ...]) -> None:
    for table in tables:
        tx.execute(_deletion(table))


@cache
def _deletion(table: Table) -> Statement:
    return Statement(delete(table))

"""Free the leases of worker processes that have died, before they end.

A job or turn of a dead worker is due at once. But what it did may be why it died: a job at whose
step workers have died `QUICK_ATTEMPTS` times, and a chore whose last turn ended so, wait for the
end of the lease, so that the process does not die again and again with no time for other work.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import msgspec
from sqlalchemy import bindparam, literal_column, select, update
from sqlalchemy import text as sql

from cloudcore.clock import Clock
from cloudcore.db.base import Connection, Database
from cloudcore.db.statement import Statement, listed, text_list
from cloudcore.errors import PlatformError
from cloudcore.jobs.faults import Fault, next_fault
from cloudcore.jobs.running import last_turn, repeated
from cloudcore.jobs.tables import jobs, schedules

QUICK_ATTEMPTS: Final = 3
"""Attempts at a step that follow one another at once when workers die."""
EVERY_SECONDS: Final = 5
TURN_LOST: Final = ("WORKER_LOST", "the worker died, or was stopped, during the turn")

_log = logging.getLogger(__name__)

_j, _s = jobs.c, schedules.c
_FREE_JOBS: Final = Statement(
    update(jobs)
    .where(
        _j.lease_holder.in_(listed("holders")),
        _j.lease_holder.is_not(None),
        _j.attempts <= literal_column(str(QUICK_ATTEMPTS)),
    )
    .values(due_at=bindparam("now"), lease_token=sql("NULL"), lease_holder=sql("NULL"))
)
_LOCK_TURNS: Final = Statement(
    # There are about ten rows.
    select(_s.name, _s.fault).where(_s.lease_holder.in_(listed("holders"))).with_for_update()
)
_FREE_TURN: Final = Statement(
    update(schedules)
    .where(_s.name == bindparam("chore"))
    .values(
        due_at=bindparam("now"),
        lease_token=sql("NULL"),
        lease_holder=sql("NULL"),
        fault=bindparam("fault"),
    )
)


def free_leases(tx: Connection, holders: Sequence[str], now: int) -> int:
    """Make the jobs and turns of dead workers due; return how many. Their tokens are void."""
    tx.announce()
    freed = tx.execute(_FREE_JOBS, holders=text_list(holders), now=now)
    for name, row in tx.rows(_LOCK_TURNS, holders=text_list(holders)):
        known = msgspec.json.decode(row, type=Fault) if row else None
        if known is not None and known.code == TURN_LOST[0]:
            continue
        fault = msgspec.json.encode(next_fault(known, *TURN_LOST, now)).decode()
        freed += tx.execute(_FREE_TURN, chore=name, fault=fault, now=now)
    return freed


class DeadHolders:
    """Frees the leases of workers once each is known to have died."""

    def __init__(
        self, database: Database, clock: Clock, dead: Callable[[], Collection[str]]
    ) -> None:
        """Ask `dead` for the ids of dead workers, among which may be those of long ago."""
        self._database = database
        self._clock = clock
        self._dead = dead
        self._freed: set[str] = set()

    async def look(self) -> None:
        """Free the leases of those that have died since the last look.

        Raises:
            Unavailable: the database cannot do so now; the next look tries again.

        """
        dead = set(self._dead())
        self._freed &= dead
        if new := dead - self._freed:
            await self.free(*new)
            self._freed |= new

    async def free(self, *holders: str) -> None:
        """Free the leases of workers that run nothing any more."""
        await self._database.write_relaxed(free_leases, sorted(holders), self._clock())


@asynccontextmanager
async def noticing_deaths(dead: DeadHolders, worker_id: str) -> AsyncIterator[None]:
    """Free what dead workers held, now and during the block; at its end, what this one holds."""
    try:
        await dead.look()
    except PlatformError as error:
        _log.warning("what dead workers held is not free yet: %s", error)
    async with repeated(EVERY_SECONDS, dead.look):
        yield
    await last_turn(partial(dead.free, worker_id), "leases of jobs")

"""The schedule: periodic chores, each run by one worker at a time.

A chore's row holds the start of its next turn. The worker that takes the turn leases the row,
renews the lease while the chore runs, and then sets the next turn. If the worker dies, the row is
due again when its death is detected, at the latest at the end of the lease, and another worker
takes the turn.

Turns begin at multiples of the period since the epoch. So chores with the same period are due at
the same moment: one query and one lease take all of them, and every other worker makes one query.

Clocks of several hosts need only agree roughly.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from cloudcore.clock import MICROSECONDS, Clock, microseconds, system_clock, uuid7
from cloudcore.db.base import Database
from cloudcore.errors import PlatformError, Unavailable
from cloudcore.jobs import schedule_rows
from cloudcore.jobs.background import BackgroundTask, run_under_lease
from cloudcore.jobs.queue import later

_log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A periodic chore. A failure is logged; the next turn tries again."""

    name: str
    """Key of its row, ``family.noun``; must not change between releases."""
    every_seconds: float
    run: Callable[[], Awaitable[object]]
    """Does the work of one turn, in batches, because the turn starts again if the worker dies."""
    longest_seconds: float = 3600
    """Seconds after which a turn is cancelled."""

    def next_turn(self, now: int) -> int:
        """Return the start of the next turn after `now`, in microseconds since the epoch."""
        period = microseconds(self.every_seconds)
        return (now // period + 1) * period


def scheduled(
    *chores: tuple[str, float, Callable[[T], Awaitable[object]]],
) -> Callable[[T], Sequence[Scheduled]]:
    """Return a function that makes a family's schedule from its dependencies.

    Each chore is (name, period in seconds, function of the dependencies).
    """
    return lambda needs: [
        Scheduled(name, seconds, partial(run, needs)) for name, seconds, run in chores
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerPace:
    """The time parameters of a scheduler, in seconds."""

    lease_seconds: float = 60
    """Duration of a lease, after which a dead worker's chore is due; renewed at a third of it."""
    look_seconds: float = 60
    """Maximum time between two reads of the rows."""
    retry_seconds: float = 2
    """Pause after the database was unavailable."""
    spread_seconds: float = 1
    """Maximum random delay of a worker after a turn begins, so that one worker leases it and the
    others find it leased."""


_PACE: Final = SchedulerPace()
_RELEASE_SECONDS: Final = 1


class Scheduler(BackgroundTask):
    """Runs its `chores` when they are due; ignores the rows of other chores."""

    name: Final = "scheduler"

    def __init__(
        self,
        database: Database,
        chores: Sequence[Scheduled],
        *,
        pace: SchedulerPace = _PACE,
        clock: Clock = system_clock,
        new_id: Callable[[], str] = uuid7,
        chance: Callable[[], float] = random.random,
        holder: str | None = None,
    ) -> None:
        """Take turns of `chores`; `holder` is this process's id, if others can detect its death."""
        super().__init__()
        self._database = database
        self._holder = holder
        self._chores = {chore.name: chore for chore in chores}
        if len(self._chores) < len(chores):
            raise ValueError("two chores of the schedule have the same name")
        self._pace = pace
        self._clock = clock
        self._new_id = new_id
        self._chance = chance
        self._due_at: dict[str, int] = {}
        """Due time of each chore, as last read by this worker."""
        self._looked_at = 0
        self._spread = 0
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Take turns until `stop`; if cancelled, release the running turns for other workers."""
        try:
            await self._make_rows()
            while not self._is_stopping:
                seconds = self._seconds_to_look()
                if seconds > 0:
                    await self._pause(seconds)
                else:
                    await self._look()
            while self._under_way:
                await asyncio.wait(self._under_way.values())
        finally:
            under_way = list(self._under_way.values())
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _make_rows(self) -> None:
        """Insert missing rows, due at each chore's next turn."""
        now = self._clock()
        due_at = {name: chore.next_turn(now) for name, chore in self._chores.items()}
        await self._database.write_relaxed(schedule_rows.insert_missing, due_at)

    def _seconds_to_look(self) -> float:
        """Return the seconds until the rows are to be read again."""
        now = self._clock()
        if now < self._looked_at:  # the clock was set back
            return 0
        looks = [self._looked_at + microseconds(self._pace.look_seconds)]
        looks += [
            due_at + self._spread
            for name, due_at in self._due_at.items()
            if name not in self._under_way
        ]
        return (min(looks) - now) / MICROSECONDS

    async def _look(self) -> None:
        """Lease the chores that are due and start them."""
        self._looked_at = self._clock()
        self._spread = microseconds(self._chance() * self._pace.spread_seconds)
        try:
            self._due_at = await self._database.read(schedule_rows.due_times, list(self._chores))
            now = self._clock()  # after a slow read, an earlier time would make due times wrong
            await self._correct(now)
            chores = self._due_at.items()
            due = [name for name, at in chores if at <= now and name not in self._under_way]
            if not due:
                return
            token, until = self._new_id(), later(now, self._pace.lease_seconds)
            leased = await self._database.write_relaxed(
                schedule_rows.lease, due, token, until, now, self._holder
            )
        except Unavailable as error:
            _log.warning("the schedule cannot be read: %s", error)
            await self._pause(self._pace.retry_seconds)
            self._looked_at = 0  # forces another look
            return
        for name in leased:
            self._due_at[name] = until
            task = asyncio.create_task(
                self._run_turn(self._chores[name], token), name=f"chore {name}"
            )
            self._under_way[name] = task
            task.add_done_callback(partial(self._forget_task, name))

    async def _correct(self, now: int) -> None:
        """Make chores due now if a wrong clock set their due time beyond any turn or lease."""
        for name, due_at in self._due_at.items():
            chore = self._chores[name]
            furthest = later(now, chore.every_seconds + 2 * self._pace.lease_seconds)
            if due_at > furthest and await self._database.write_relaxed(
                schedule_rows.hasten, name, due_at, now
            ):
                self._due_at[name] = now

    def _forget_task(self, name: str, _: asyncio.Task[None]) -> None:
        del self._under_way[name]
        self._woken.set()

    async def _run_turn(self, chore: Scheduled, token: str) -> None:
        """Take one turn; cancel it when its lease is lost."""

        async def renew() -> bool:
            until = later(self._clock(), self._pace.lease_seconds)
            return await self._database.write_relaxed(schedule_rows.renew, chore.name, token, until)

        what = f"the chore {chore.name}"
        await run_under_lease(
            what, self._take_turn(chore, token), renew, self._pace.lease_seconds / 3
        )

    async def _take_turn(self, chore: Scheduled, token: str) -> None:
        try:
            fault = await _run(chore)
        except asyncio.CancelledError:
            await self._release(chore, token)
            raise
        await self._end(chore, token, chore.next_turn(self._clock()), fault)

    async def _release(self, chore: Scheduled, token: str) -> None:
        """Release the lease, so that another worker can take the turn; ignore a lost lease."""
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                await self._database.write_relaxed(
                    schedule_rows.release, chore.name, token, self._clock()
                )
        except (TimeoutError, Unavailable) as error:
            _log.warning("the chore %s waits for the end of its lease: %r", chore.name, error)

    async def _end(
        self, chore: Scheduled, token: str, due_at: int, fault: tuple[str, str] | None
    ) -> None:
        """Release the lease and set the next turn."""
        turn = (chore.name, token, due_at, fault)
        try:
            if await self._database.write_relaxed(schedule_rows.end, *turn, self._clock()):
                self._due_at[chore.name] = due_at
        except Unavailable as error:
            _log.warning("the turn of the chore %s is not recorded: %s", chore.name, error)


async def _run(chore: Scheduled) -> tuple[str, str] | None:
    """Run a chore once; log its failure. Return the failure's code and message, or None."""
    try:
        async with asyncio.timeout(chore.longest_seconds):
            await chore.run()
    except PlatformError as error:
        _log.warning("the chore %s failed: %s", chore.name, error)
        return "CHORE_FAILED", str(error)
    except TimeoutError:
        _log.exception("the chore %s took too long", chore.name)
        return "TIMEOUT", "the turn took too long"
    except Exception:  # noqa: BLE001 - the next turn tries again
        _log.exception("the chore %s failed", chore.name)
        return "INTERNAL_ERROR", "the turn failed unexpectedly"
    return None

"""What queues depend on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloudcore.clock import Clock
    from cloudcore.db.base import Database
    from cloudcore.queue.waiting import Bells, Waiter
    from cloudcore.room_checks import RoomChecks


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueNeeds:
    """The dependencies of the routes and the timers of queues."""

    database: Database
    clock: Clock
    bells: Bells
    waiter: Waiter
    room: RoomChecks

    @classmethod
    def of(cls, database: Database, clock: Clock) -> QueueNeeds:
        """Return the dependencies of one process."""
        from cloudcore.queue.waiting import Bells, Waiter  # noqa: PLC0415
        from cloudcore.room_checks import RoomChecks  # noqa: PLC0415

        bells = Bells(database)
        waiter = Waiter(database, clock, bells)
        return cls(database=database, clock=clock, bells=bells, waiter=waiter, room=RoomChecks())

"""What queues depend on, and what they offer: to send messages in a transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cloudcore.clock import Clock
from cloudcore.db.base import Database
from cloudcore.ports import Opening, Port, offer
from cloudcore.queue.port import Queues
from cloudcore.queue.waiting import Bells, Waiter
from cloudcore.room_checks import RoomChecks

QUEUES: Final[Port[Queues]] = Port("queue.queues")


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
        bells = Bells(database)
        waiter = Waiter(database, clock, bells)
        return cls(database=database, clock=clock, bells=bells, waiter=waiter, room=RoomChecks())


async def open_needs(opening: Opening) -> QueueNeeds:
    """Return the dependencies of one process."""
    return QueueNeeds.of(opening.install.database, opening.install.clock)


async def _open_queues(opening: Opening) -> Queues:
    return Queues(opening.install.region, opening.install.clock)


OFFERS: Final = (offer(QUEUES, _open_queues),)

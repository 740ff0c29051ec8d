"""Queues over a database, without a server: two accounts and a clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from msgspec import structs

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.queue import messages
from cloudcore.queue.message_rows import Depth, Message, depth
from cloudcore.queue.messages import FailedLease, NewMessage, lease_id
from cloudcore.queue.queue import Queue, check_message
from cloudcore.queue.queues import QUEUES, ROWS, purge
from cloudcore.resources.resource import Reference
from tests.inprocess import ManualClock
from tests.kms_world import ACME, GLOBEX, add_account

REGION: Final = "local"


class Redrive(NamedTuple):
    """A redrive policy, as the fields of a queue."""

    dead_letter_queue: Reference | None
    max_leases: int | None


NO_REDRIVE: Final = Redrive(None, None)


class Leased(NamedTuple):
    """A leased message, with the id of its lease."""

    lease_id: str
    message: Message


@dataclass
class QueueWorld:
    """Two accounts, ``acme`` and ``globex``, and what is done with their queues."""

    database: Database
    clock: ManualClock = field(default_factory=ManualClock)

    async def make(
        self, name: str, *, redrive: Redrive | None = None, account_id: str = ACME, **fields: int
    ) -> Queue:
        """Create a queue."""
        now = self.clock()
        queue = Queue(
            id=uuid7(now),
            account_id=account_id,
            region=REGION,
            name=name,
            retention_seconds=3600,
            created_at=now,
            updated_at=now,
        )
        queue = structs.replace(queue, **fields, **(redrive or NO_REDRIVE)._asdict())
        return await self.database.write(QUEUES.create, queue)

    async def redrive(self, name: str, max_leases: int) -> Redrive:
        """Return the redrive policy that sends dead letters to acme's queue of a name."""
        found = await self.database.read(ROWS.find_named, ACME, REGION, name)
        assert found is not None
        return Redrive(Reference(found.id, name), max_leases)

    async def send(self, queue: Queue, *bodies: str, delay: int | None = None) -> list[str]:
        """Send messages; return their ids."""

        def change(tx: Connection) -> list[str]:
            new = [NewMessage(each, {}, check_message("", each, {}), delay) for each in bodies]
            now = self.clock()
            sent = messages.send_messages(
                tx, queue.account_id, queue.id, new, now, checks_room=True
            )
            return [each.id for each in sent]

        return await self.database.write(change)

    async def lease(self, queue: Queue, most: int = 10, seconds: int | None = None) -> list[Leased]:
        """Lease messages."""
        leased = None
        while leased is None:
            leased = await self.database.write(
                messages.lease_messages, queue.account_id, queue.id, most, seconds, self.clock()
            )
        return [Leased(lease_id(each.id, each.lease_token), each) for each in leased]

    async def bodies(self, queue: Queue, most: int = 10) -> list[str]:
        """Lease messages; return their bodies."""
        return [each.message.body.decode() for each in await self.lease(queue, most)]

    async def acknowledge(self, queue: Queue, *lease_ids: str) -> list[str | None]:
        """Acknowledge leases; return the code of the error of each, or None."""
        current = await self.current(queue)
        _, failed = await self.database.write(
            messages.acknowledge, current, lease_ids, self.clock()
        )
        return codes(lease_ids, failed)

    async def extend(self, queue: Queue, seconds: int, *lease_ids: str) -> list[str | None]:
        """Extend leases; return the code of the error of each, or None."""
        current = await self.current(queue)
        _, failed = await self.database.write(
            messages.extend, current, lease_ids, seconds, self.clock()
        )
        return codes(lease_ids, failed)

    async def purge(self, queue: Queue) -> None:
        """Purge a queue."""
        await self.database.write(purge, queue)

    async def depth(self, queue: Queue) -> Depth:
        """Return what a queue holds."""
        return await self.database.read(depth, await self.current(queue), self.clock())

    async def current(self, queue: Queue) -> Queue:
        """Return a queue as it is now."""
        found = await self.database.read(ROWS.find, queue.account_id, queue.id)
        assert found is not None
        return found


def codes(lease_ids: Sequence[str], failed: Sequence[FailedLease]) -> list[str | None]:
    """Return why nothing was done to each lease, or None."""
    why = {each.lease_id: each.code for each in failed}
    return [why.get(each) for each in dict.fromkeys(lease_ids)]


async def make_queue_world(database: Database) -> QueueWorld:
    """Add both accounts to an empty database."""

    def add(tx: Connection) -> None:
        add_account(tx, ACME, "acme")
        add_account(tx, GLOBEX, "globex")

    await database.write(add)
    return QueueWorld(database)

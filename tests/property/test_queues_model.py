"""Queues against a model of them: late acknowledgements, redrive, retention and purges."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from cloudcore.clock import MICROSECONDS
from cloudcore.identity.tables import accounts
from cloudcore.queue import chores
from cloudcore.queue.message_rows import queue_messages
from cloudcore.queue.needs import QueueNeeds
from cloudcore.queue.queues import ROWS
from cloudcore.resources.resource import Reference
from tests.databases import on_both_databases
from tests.inprocess import ManualClock
from tests.property.machines import DatabaseMachine, run_machine
from tests.queue_world import Leased, Redrive, make_queue_world

RETENTION: Final = 600
MAX_LEASES: Final = 2


class StandingClock(ManualClock):
    """A clock that stands until it is moved."""

    def __call__(self) -> int:
        return self.now


@dataclass
class Expected:
    """What the model knows of a message."""

    id: str
    queued_at: int
    hidden_until: int = 0
    lease_id: str | None = None
    lease_count: int = 0


class Queues(DatabaseMachine):
    """A queue and its dead-letter queue. Leases are kept for ever, so each is used late, too."""

    def __init__(self, url: str) -> None:
        super().__init__(url, queue_messages, ROWS.table, accounts)
        self.world = self.wait(make_queue_world(self.database))
        self.world.clock = StandingClock()
        self.needs = QueueNeeds.of(self.world.database, self.world.clock)
        self.dead_queue = self.wait(self.world.make("dead", retention_seconds=RETENTION))
        self.queue = self.wait(
            self.world.make(
                "jobs",
                retention_seconds=RETENTION,
                redrive=Redrive(Reference(self.dead_queue.id), MAX_LEASES),
            )
        )
        self.model: list[Expected] = []
        self.dead: list[Expected] = []
        self.leases: list[Leased] = []
        self.sent = 0

    @property
    def now(self) -> int:
        return self.world.clock()

    def settle(self) -> None:
        """Move on what is due, as a lease or the chore does."""
        kept_from = self.now - RETENTION * MICROSECONDS
        staying = []
        for each in self.model:
            if each.hidden_until > self.now or each.hidden_until == 0:
                is_old = each.hidden_until == 0 and each.queued_at <= kept_from
                staying += [] if is_old else [each]
            elif each.queued_at > kept_from:
                if each.lease_id is not None and each.lease_count >= MAX_LEASES:
                    self.dead.append(Expected(each.id, self.now))
                else:
                    each.hidden_until, each.lease_id = 0, None
                    staying.append(each)
        self.model = staying

    @rule(count=st.integers(1, 4), delay=st.sampled_from([0, 0, 50]))
    def send(self, count: int, delay: int) -> None:
        bodies = [str(self.sent + number) for number in range(count)]
        self.sent += count
        ids = self.wait(self.world.send(self.queue, *bodies, delay=delay))
        hidden_until = self.now + delay * MICROSECONDS if delay else 0
        self.model += [Expected(each, self.now, hidden_until) for each in ids]

    @rule(most=st.integers(1, 4), seconds=st.sampled_from([10, 100]))
    def lease(self, most: int, seconds: int) -> None:
        self.settle()
        wanted = [each for each in self.model if each.hidden_until == 0][:most]
        leased = self.wait(self.world.lease(self.queue, most, seconds))
        assert [each.message.id for each in leased] == [each.id for each in wanted]
        for each, expected in zip(leased, wanted, strict=True):
            expected.lease_id = each.lease_id
            expected.lease_count += 1
            expected.hidden_until = self.now + seconds * MICROSECONDS
            assert each.message.lease_count == expected.lease_count
        earlier = {each.lease_id for each in self.leases}
        assert not earlier & {each.lease_id for each in leased}
        self.leases += leased

    def outcome(self, leased: Leased) -> tuple[str | None, Expected | None]:
        """Return what an act on a lease must answer, and the message if the lease goes on."""
        for each in self.model:
            if each.id == leased.message.id:
                if each.lease_id == leased.lease_id and each.hidden_until > self.now:
                    return None, each
                return "LEASE_EXPIRED", None
        return "NOT_FOUND", None

    @rule(number=st.integers(0, 20))
    def acknowledge(self, number: int) -> None:
        if self.leases:
            leased = self.leases[number % len(self.leases)]
            expected, message = self.outcome(leased)
            assert self.wait(self.world.acknowledge(self.queue, leased.lease_id)) == [expected]
            if message is not None:
                self.model.remove(message)

    @rule(number=st.integers(0, 20), seconds=st.sampled_from([0, 30]))
    def extend(self, number: int, seconds: int) -> None:
        if self.leases:
            leased = self.leases[number % len(self.leases)]
            expected, message = self.outcome(leased)
            assert self.wait(self.world.extend(self.queue, seconds, leased.lease_id)) == [expected]
            if message is not None:
                message.hidden_until = self.now + seconds * MICROSECONDS

    @rule()
    def purge(self) -> None:
        self.wait(self.world.purge(self.queue))
        self.model = []

    @rule()
    def do_chores(self) -> None:
        self.wait(chores.settle_queues(self.needs))
        self.settle()
        kept_from = self.now - RETENTION * MICROSECONDS
        self.dead = [each for each in self.dead if each.queued_at > kept_from]

    @rule(seconds=st.sampled_from([1, 10, 60, 400]))
    def pass_time(self, seconds: int) -> None:
        self.world.clock.advance(seconds)

    @invariant()
    def the_depth_is_the_models(self) -> None:
        hidden = [each for each in self.model if each.hidden_until > self.now]
        leased = [each for each in hidden if each.lease_id is not None]
        depth = self.wait(self.world.depth(self.queue))
        assert depth[:3] == (
            len(self.model) - len(hidden),
            len(leased),
            len(hidden) - len(leased),
        )
        first = self.model[0].queued_at if self.model else None
        assert depth.oldest_at == first
        assert self.wait(self.world.depth(self.dead_queue)).visible == len(self.dead)


@on_both_databases
def test_queues_are_their_model(database_url: str) -> None:
    run_machine(partial(Queues, database_url), 5, 25)

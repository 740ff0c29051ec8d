"""Observe the proxies of a machine: which run, the health of their targets, their counters.

The watch runs in one process of the machine. It stores what has changed; the workflow reacts to
that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from msgspec import structs

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.loadbalancer import rows
from cloudcore.loadbalancer.driver import ReplicaState
from cloudcore.loadbalancer.load_balancer import LOAD_BALANCER, MOST_REPLICAS, LoadBalancer
from cloudcore.loadbalancer.metrics import ProxyCounters, counters_of, note_served
from cloudcore.loadbalancer.planning import has_moved
from cloudcore.loadbalancer.rows import ROWS
from cloudcore.loadbalancer.workflow import REPLICA_DIED, WORK, observed
from cloudcore.resources.resource import DELETING

if TYPE_CHECKING:
    from cloudcore.loadbalancer.needs import LoadBalancerNeeds

EVERY_SECONDS: Final = 2
_METRICS_SECONDS: Final = 10
"""How often metrics are stored."""
_PAGE: Final = 100


@dataclass
class ProxyWatch:
    """Watches the proxies of a machine."""

    needs: LoadBalancerNeeds
    known: dict[tuple[str, int], ProxyCounters] = field(default_factory=dict)
    """The readings of replicas that were stored last, by load balancer and replica number."""
    stored_at: int = 0

    async def turn(self) -> None:
        """Check all proxies of this machine once, and end those of deleted load balancers.

        A load balancer has a row before it has proxies. So proxies that were listed before the rows
        were read, and have no row, are leftovers.
        """
        needs, rest = self.needs, set(await self.needs.proxies.known())
        now = needs.clock()
        is_due = not 0 <= now - self.stored_at < _METRICS_SECONDS * MICROSECONDS
        self.stored_at = now if is_due else self.stored_at
        after = ""
        while found := await needs.database.read(rows.ON_NODE.page, needs.node.name, after, _PAGE):
            for each in found:
                rest.discard(each.id)
                if each.status != DELETING:
                    await self._look(each, now, with_metrics=is_due)
            after = found[-1].id
        await self._end(rest)

    async def _end(self, left: Iterable[str]) -> None:
        """End the proxies of deleted load balancers, all at once, as each may drain for long."""
        numbers = range(1, MOST_REPLICAS + 1)
        stops = [self.needs.proxies.stop(each, number) for each in left for number in numbers]
        for ended in await asyncio.gather(*stops, return_exceptions=True):
            if ended is not None:  # only after all have ended
                raise ended

    async def _look(self, found: LoadBalancer, now: int, *, with_metrics: bool) -> None:
        needs = self.needs
        seen = await needs.proxies.seen(found.id)
        is_stale = await needs.database.read(_is_stale, found, needs)
        if is_stale or observed(found, seen) != found:
            await needs.database.write(_note, found, seen, needs, is_stale, now)
        if with_metrics:
            await self._store_metrics(found, seen, now)

    async def _store_metrics(
        self, found: LoadBalancer, seen: Sequence[ReplicaState], now: int
    ) -> None:
        """Store the counters of replicas that have changed since they were stored last."""
        counts = {each.replica: counters_of(each.metrics) for each in seen if each.is_alive}
        new = {
            number: each
            for number, each in counts.items()
            if each != self.known.get((found.id, number), ProxyCounters())
        }
        if new:
            await self.needs.database.write_relaxed(note_served, found, new, now)
            self.known |= {(found.id, number): each for number, each in new.items()}


def _is_stale(tx: Connection, found: LoadBalancer, needs: LoadBalancerNeeds) -> bool:
    """Return True if a certificate, or the set of targets in allowed addresses, has changed.

    Return False if the newest plan is not applied yet.
    """
    held: Mapping[str, str] = found.fingerprints
    if found.applied != found.generation:
        return False
    netns = needs.network.namespace_of(found.vpc.id)
    if has_moved(tx, found, needs.dialled if netns is None else None):
        return True
    certificates = needs.parts.certificates
    return any(
        certificates.fingerprint(tx, found.account_id, each) not in (None, held.get(each))
        for each in found.certificates
    )


def _note(
    tx: Connection,
    seen_of: LoadBalancer,
    seen: Sequence[ReplicaState],
    needs: LoadBalancerNeeds,
    is_stale: bool,  # noqa: FBT001 - as `Database.write` passes it
    now: int,
) -> None:
    """Store the observed state; if a proxy is dead, or `is_stale`, request to apply the plan again.

    Store nothing if the load balancer was changed meanwhile.
    """
    WORK.wake(tx, seen_of, now, hastens=False)  # first: steps, too, lock the job before the record
    current = ROWS.try_lock(tx, seen_of.account_id, seen_of.id)
    if current is None:
        return
    if current.generation != seen_of.generation or current.status == DELETING:
        return  # it was changed meanwhile; the next turn checks it again
    changed = observed(current, seen)
    is_settled = current.applied == current.generation
    dead = [each.number for each in changed.replicas if not each.is_alive]
    if is_settled and dead:
        words = "a proxy has ended unexpectedly, and is started again"
        changed = changed.with_fault(REPLICA_DIED, words, now)
    if is_settled and (dead or is_stale):
        changed = structs.replace(changed, generation=current.generation + 1)
    if changed != current:
        if changed.status != current.status:
            changed = structs.replace(changed, updated_at=now)
        ROWS.save(tx, changed)
        LOAD_BALANCER.tell_state(needs.events, tx, current, changed)

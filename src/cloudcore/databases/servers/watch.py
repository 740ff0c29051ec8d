"""Watch the servers of this machine: restart those that ended, set aside those without a row.

One process of a machine watches. Only a cluster's workflow starts its server; for a server that has
ended, the watch wakes that workflow, with growing pauses between repeated ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import structs

from cloudcore.clock import MICROSECONDS
from cloudcore.databases.backups import rows as backup_rows
from cloudcore.databases.clusters import rows, states
from cloudcore.databases.clusters.cluster import (
    DISK_EXCEEDED,
    SERVER_CRASHING,
    SERVER_FAILED,
    Cluster,
)
from cloudcore.databases.clusters.rows import CLUSTERS
from cloudcore.databases.clusters.workflow import WORK
from cloudcore.databases.servers.driver import ServerFailed, ServerState
from cloudcore.db.base import Connection
from cloudcore.errors import PlatformError
from cloudcore.resources.resource import DELETING

if TYPE_CHECKING:
    from cloudcore.databases.needs import DatabaseNeeds
    from cloudcore.databases.servers.bubblewrap import BubblewrapServers

EVERY_SECONDS: Final = 2
_LONGEST_PAUSE: Final = 60
_CRASHES: Final = 5
"""After so many ends of a server within `_CRASH_SECONDS`, its cluster gets a fault."""
_CRASH_SECONDS: Final = 600
_ROOM_SECONDS: Final = 600
"""How long after a start a server may exceed its disk, so that its owner can delete data."""
_CERTIFICATE_SECONDS: Final = 30 * 24 * 3600
"""A server's certificate is replaced at this age, a third of its life."""
_EXPIRE_SECONDS: Final = 3600
_MIB: Final = 1024 * 1024
_MISSING: Final = ServerState("missing")
_log = logging.getLogger(__name__)


class ServerWatch:
    """Watches the servers of one machine."""

    def __init__(self, needs: DatabaseNeeds, driver: BubblewrapServers) -> None:
        self._needs = needs
        self._driver = driver
        self._ends: dict[str, list[int]] = {}
        """When each server was found ended, within `_CRASH_SECONDS`; all times are in microseconds
        since the epoch."""
        self._paused: dict[str, int] = {}
        """When each server that ended may be started again."""
        self._running_since: dict[str, int] = {}
        self._expired_at = 0

    async def turn(self) -> None:
        """Check all servers of this machine once."""
        needs, driver, now = self._needs, self._driver, self._needs.clock()
        seen = await driver.seen()
        found = await needs.database.read(rows.CLUSTERS_ON.all, needs.node.name)
        proved = await needs.database.read(backup_rows.verifying_on, needs.node.name)
        for each in found:
            if each.type == "managed" and each.has_data and _is_settled(each):
                try:
                    await self._look(each, seen.get(each.id, _MISSING), now)
                except (ServerFailed, PlatformError) as failed:  # go on with the others
                    _log.warning("the server %s is looked at again: %s", each.id, failed)
        for other in seen.keys() - {each.id for each in found} - {*proved}:
            try:
                if await driver.set_aside(other):
                    _log.warning("no row knows the server %s: its data were set aside", other)
            except ServerFailed as failed:
                _log.warning("the server %s is set aside later: %s", other, failed)
        if now - self._expired_at > _EXPIRE_SECONDS * MICROSECONDS:
            self._expired_at = now
            await driver.delete_expired()

    async def _look(self, found: Cluster, seen: ServerState, now: int) -> None:
        if seen.status == "running":
            await self._running(found, seen, now)
            return
        self._running_since.pop(found.id, None)
        if not found.is_wanted or seen.status == "starting":
            return
        if seen.status == "missing" and found.status == "unavailable":
            return  # already noted
        if seen.status == "missing":
            words = "the machine does not have its data: restore a backup into a new cluster"
            await self._note(found, _unavailable(SERVER_FAILED, words, now), now)
        elif self._paused.get(found.id, 0) <= now:
            await self._ended(found, now)

    async def _running(self, found: Cluster, seen: ServerState, now: int) -> None:
        if not found.is_wanted:
            await self._driver.stop(found.id)
            return
        since = self._running_since.setdefault(found.id, now)
        is_full = seen.data_bytes > found.disk_mb * _MIB
        if is_full and now - since > _ROOM_SECONDS * MICROSECONDS:
            await self._driver.stop(found.id)
            await self._note(found, _full(found, seen, now), now)
        elif found.status != "active":
            await self._note(found, lambda one: structs.replace(one, status="active"), now)
        elif self._is_steady(found, now):
            await self._note(found, lambda one: one.without_faults(SERVER_CRASHING), now)
        if now - seen.certified_at > _CERTIFICATE_SECONDS * MICROSECONDS:
            await self._certify(found)

    def _is_steady(self, found: Cluster, now: int) -> bool:
        """Return True if a server with the fault `SERVER_CRASHING` has run for ten minutes."""
        steady_at = self._running_since[found.id] + _CRASH_SECONDS * MICROSECONDS
        return now >= steady_at and any(each.code == SERVER_CRASHING for each in found.faults)

    async def _ended(self, found: Cluster, now: int) -> None:
        """Request the restart of a server that has ended.

        The next request follows after at least 1 s, doubled with each recent end up to 60 s.
        """
        seen = (await self._driver.seen()).get(found.id, _MISSING)
        if seen.status != "stopped":
            return  # it was started between the two looks
        since = now - _CRASH_SECONDS * MICROSECONDS
        ends = [*(each for each in self._ends.get(found.id, ()) if each > since), now]
        self._ends[found.id] = ends
        pause = min(2 ** (len(ends) - 1), _LONGEST_PAUSE)
        self._paused[found.id] = now + pause * MICROSECONDS
        words = f"the server ended {len(ends)} times in ten minutes, the last time: {seen.words}"
        code = SERVER_CRASHING if len(ends) >= _CRASHES else ""
        await self._note(found, _again(code, words, now), now)

    async def _certify(self, found: Cluster) -> None:
        """Replace a server's certificate, and store its roots for clients."""
        needs = self._needs
        issued = await needs.authority.issue([needs.terms.address, needs.node.name])
        spec = states.spec_of(found)
        await self._driver.reload_certificate(spec, issued.chain_pem, issued.key_pem)
        roots = issued.ca_pem
        await self._note(found, lambda one: structs.replace(one, ca=roots), needs.clock())

    async def _note(self, found: Cluster, seen: Callable[[Cluster], Cluster], now: int) -> None:
        await self._needs.database.write(_store, self._needs, found, seen, now)


def _is_settled(found: Cluster) -> bool:
    """Return True if a cluster has no pending work."""
    return found.status != DELETING and found.applied == found.generation


def _store(
    tx: Connection,
    needs: DatabaseNeeds,
    found: Cluster,
    seen: Callable[[Cluster], Cluster],
    now: int,
) -> None:
    """Store the observed state of a cluster, unless its owner has requested a change meanwhile."""

    def changed(current: Cluster) -> Cluster:
        is_same = (current.generation, current.applied) == (found.generation, found.applied)
        return seen(current) if is_same else current

    current = CLUSTERS.find(tx, found.account_id, found.id)
    if current is not None:  # steps, too, lock the job before the record
        WORK.wake(tx, current, now, hastens=False)
    states.observe(tx, needs.events, found.account_id, found.id, changed, now)


def _unavailable(code: str, words: str, now: int) -> Callable[[Cluster], Cluster]:
    def noted(current: Cluster) -> Cluster:
        if current.status == "unavailable":
            return current
        return structs.replace(current.with_fault(code, words, now), status="unavailable")

    return noted


def _again(code: str, words: str, now: int) -> Callable[[Cluster], Cluster]:
    def noted(current: Cluster) -> Cluster:
        faulty = current.with_fault(code, words, now) if code else current
        return structs.replace(faulty, status="unavailable", generation=current.generation + 1)

    return noted


def _full(found: Cluster, seen: ServerState, now: int) -> Callable[[Cluster], Cluster]:
    has = seen.data_bytes // _MIB
    words = (
        f"the server was stopped: it has {has} MiB, and may have {found.disk_mb}. Start it, and"
        " delete some within ten minutes, or restore a backup into a larger cluster"
    )

    def noted(current: Cluster) -> Cluster:
        full = current.with_fault(DISK_EXCEEDED, words, now)
        return structs.replace(full, status="stopped", is_wanted=False)

    return noted

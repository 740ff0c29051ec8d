"""Make the instances of this machine match their rows; nothing else starts or stops them.

One process of a machine does so in a loop: it reads the rows, looks at what runs, stores the
differences, and starts the necessary actions. A row is inserted before anything of its instance
exists, and deleted after all of the instance is gone. So after a crash, the next process finds each
instance by its row, adopts what runs, and removes what has no row.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from cloudcore.compute import instances, rollout, rows
from cloudcore.compute.driver import InstanceState, SandboxFailed
from cloudcore.compute.images import ImageRefused
from cloudcore.compute.instance_pool import (
    INSTANCE_FAILED,
    NO_ADDRESS,
    Instance,
    InstancePool,
    InstanceStatus,
)
from cloudcore.compute.instance_runner import InstanceRunner
from cloudcore.errors import PlatformError
from cloudcore.jobs.queue import later
from cloudcore.resources.resource import DELETING

if TYPE_CHECKING:
    from cloudcore.compute.needs import ComputeNeeds
    from cloudcore.compute.shim_instances import ShimInstances

LOOK_SECONDS: Final = 1
_RETRY_SECONDS: Final = 5
"""The pause after a failed action."""
_MOST_FAILURES: Final = 3
"""Consecutive failures of an action after which its pool gets a fault."""
_AT_ONCE: Final = 8
"""How many instances are ended concurrently. Each may take all its grace, so a deleted pool leaves
some threads of the driver to other instances."""
_KEEP_SECONDS: Final = 600
"""Between two searches for unused images."""
_CREDENTIALS_SECONDS: Final = 10
_log = logging.getLogger(__name__)


class InstanceReconciler:
    """Reconciles the instances of one machine."""

    def __init__(self, needs: ComputeNeeds, driver: ShimInstances) -> None:
        self._needs = needs
        self._driver = driver
        self._runner = InstanceRunner(needs, driver)
        self._acting: dict[str, asyncio.Task[None]] = {}
        """The running actions by the id of the instance, one at a time for each."""
        self._fetching: set[str] = set()
        """Instances whose image is being fetched: only this action is cancelled if the instance
        leaves."""
        self._launched: set[str] = set()
        """Instances whose program was started: if they are found ended, the program has ended
        again."""
        self._paused: dict[str, int] = {}
        """When actions may be tried again, by the id of a pool or an instance."""
        self._failures: dict[str, int] = {}
        """How often in a row an action has failed, by the id of the instance."""
        self._ending = asyncio.Semaphore(_AT_ONCE)
        self._kept_at = 0
        self._renewed_at = 0

    async def run(self) -> None:
        """Call `look` in a loop until cancelled; cancelling also cancels the running actions."""
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    await self.look(group)
                except PlatformError as error:
                    _log.warning("the instances are looked at again: %s", error)
                await asyncio.sleep(LOOK_SECONDS)

    async def look(self, group: asyncio.TaskGroup) -> None:
        """Store what has changed since the last look; start the necessary actions in `group`."""
        needs, now = self._needs, self._needs.clock()
        pools = {
            each.id: each for each in await needs.database.read(rows.POOLS_ON.all, needs.node.name)
        }
        found = await needs.database.read(rows.INSTANCES_ON.all, needs.node.name)
        seen = await self._driver.seen()
        ready = await self._runner.statuses(found, seen, now)
        noted = [await self._noted(each, seen.get(each.id), ready, now) for each in found]
        mine: dict[str, list[Instance]] = {each: [] for each in pools}
        for each in filter(None, noted):
            mine.setdefault(each.pool.id, []).append(each)
        for pool in pools.values():
            mine[pool.id] = await self._planned(pool, mine[pool.id], now)
            if rollout.told(pool, mine[pool.id], now) != pool:
                await needs.database.write(instances.update_pool_status, pool, needs, now)
        for pool_id, several in mine.items():
            for each in several:
                self._begin(group, each, pools.get(pool_id), seen.get(each.id), now)
        known = {each.id for several in mine.values() for each in several}
        for each_id in seen.keys() - known - {each.id for each in found}:
            self._act(group, each_id, self._driver.remove(each_id))
        self._look_after(group, [each for several in mine.values() for each in several], pools, now)

    async def _noted(
        self,
        found: Instance,
        seen: InstanceState | None,
        ready: Mapping[str, InstanceStatus],
        now: int,
    ) -> Instance | None:
        """Store the observed state of an instance; return it, or None if its row is gone."""
        needs, write = self._needs, self._needs.database.write
        if found.is_leaving or found.id in self._acting:
            return found
        if seen is not None and seen.status == "running":
            status = ready.get(found.id, found.status)
            if (status, seen.started_at) != (found.status, found.started_at):
                up = (status, seen.started_at)
                return await write(instances.store_running, found, *up, needs, now)
            return found
        has_ended = seen is None or seen.status == "stopped"
        was_up = found.status in ("running", "unhealthy") or found.id in self._launched
        if has_ended and was_up and found.status != "stopped":
            self._launched.discard(found.id)
            end = (None, "") if seen is None else (seen.exit_code, seen.problem)
            return await write(instances.store_end, found, *end, needs, now)
        if found.status == "stopped" and (found.not_before or 0) <= now:
            return await write(instances.note_restart, found, now)
        return found

    async def _planned(
        self, pool: InstancePool, mine: Sequence[Instance], now: int
    ) -> list[Instance]:
        """Insert new instances and mark leaving ones, as planned; return the pool's instances."""
        needs, write = self._needs, self._needs.database.write
        is_ending = pool.status == DELETING
        plan = rollout.plan(pool, mine, now)
        going: dict[str, Instance | None] = {}
        for each in plan.stops:
            gone = await write(instances.mark_leaving, each, needs, now, at_once=is_ending)
            going[each.id] = gone
            if each.id in self._fetching:  # fetching a large image takes long
                self._acting[each.id].cancel()
        has = [going.get(each.id, each) for each in mine]
        starts = 0 if self._paused.get(pool.id, 0) > now else plan.starts
        for _ in range(starts):
            try:
                has.append(await write(instances.add, pool, needs, now))
            except PlatformError as error:
                await write(instances.note_fault, pool, NO_ADDRESS, error.message, now)
                self._paused[pool.id] = later(now, _RETRY_SECONDS)
                break
        return [each for each in has if each is not None]

    def _begin(
        self,
        group: asyncio.TaskGroup,
        instance: Instance,
        pool: InstancePool | None,
        seen: InstanceState | None,
        now: int,
    ) -> None:
        """Start the necessary action on an instance of this machine, if there is one."""
        if pool is None or self._paused.get(instance.id, 0) > now:
            return
        if instance.is_leaving:
            if (instance.not_before or 0) <= now:
                self._act(group, instance.id, self._take_down(pool, instance), instance)
            return
        is_up = instance.id in self._launched or (seen is not None and seen.status == "running")
        if instance.status == "starting" and not is_up:
            self._act(group, instance.id, self._bring_up(pool, instance), instance)

    def _act(
        self,
        group: asyncio.TaskGroup,
        instance_id: str,
        work: Coroutine[Any, Any, None],
        instance: Instance | None = None,
    ) -> None:
        """Start one action on an instance, unless another one is running.

        If it fails repeatedly, add a fault to the pool of `instance`.
        """
        if instance_id in self._acting:
            work.close()
            return
        task = group.create_task(self._tried(instance_id, work, instance))
        self._acting[instance_id] = task
        task.add_done_callback(lambda _: self._acting.pop(instance_id, None))

    async def _tried(
        self, instance_id: str, work: Coroutine[Any, Any, None], instance: Instance | None
    ) -> None:
        problem = ""
        try:
            await work
        except SandboxFailed as error:  # already stored as a fault
            why = error.__cause__ or error  # it names folders of this machine
            _log.warning("the instance %s is looked at again: %s", instance_id, why)
        except PlatformError as error:
            _log.warning("the instance %s is looked at again: %s", instance_id, error)
            problem = f"its machine cannot do it now: {error.message}"
        except Exception:  # noqa: BLE001 - it is tried again
            _log.warning("the instance %s is looked at again", instance_id, exc_info=True)
            problem = f"its machine, {self._needs.node.name}, failed; the log there says why"
        else:
            self._paused.pop(instance_id, None)
            self._failures.pop(instance_id, None)
            return
        now = self._needs.clock()
        self._paused[instance_id] = later(now, _RETRY_SECONDS)
        self._failures[instance_id] = self._failures.get(instance_id, 0) + 1
        if instance is not None and problem and self._failures[instance_id] >= _MOST_FAILURES:
            with suppress(PlatformError):  # the next failure notes it
                await self._note_failed(instance, problem, now)

    async def _note_failed(self, instance: Instance, words: str, now: int) -> None:
        write = self._needs.database.write
        await write(instances.note_fault, instance, INSTANCE_FAILED, words, now)

    async def _bring_up(self, pool: InstancePool, instance: Instance) -> None:
        """Start an instance; if the image is refused or the sandbox fails, store that it ended."""
        needs, problem = self._needs, ""
        try:
            self._fetching.add(instance.id)
            root = await self._runner.root_of(pool, instance)
            self._fetching.discard(instance.id)
            of = instance.id, instance.account_id
            if not await needs.database.read(instances.is_staying, *of):
                return
            await self._runner.bring_up(pool, instance, root)
        except ImageRefused as refused:
            problem = f"its image is refused: {refused}"
        except SandboxFailed as failed:
            problem = str(failed)
            why = failed.__cause__ or failed
            _log.warning("the instance %s was not started: %s", instance.id, why)
        finally:
            self._fetching.discard(instance.id)
        if problem:
            end = (None, problem, needs, needs.clock())
            await needs.database.write(instances.store_end, instance, *end)
        else:
            self._launched.add(instance.id)

    async def _take_down(self, pool: InstancePool, instance: Instance) -> None:
        """Stop an instance, and then delete its row."""
        needs = self._needs
        try:
            async with self._ending:
                await self._runner.take_down(pool, instance)
        except SandboxFailed as failed:
            await self._note_failed(instance, f"it cannot be ended: {failed}", needs.clock())
            raise
        await needs.database.write(instances.delete_instance, instance, needs, needs.clock())
        self._launched.discard(instance.id)

    def _look_after(
        self,
        group: asyncio.TaskGroup,
        mine: Sequence[Instance],
        pools: Mapping[str, InstancePool],
        now: int,
    ) -> None:
        """Renew credentials and remove unused images, each at its interval."""
        if now >= later(self._renewed_at, _CREDENTIALS_SECONDS):
            self._renewed_at = now
            self._act(group, "credentials", self._runner.renew(pools, mine))
        if now >= later(self._kept_at, _KEEP_SECONDS):
            self._kept_at = now
            self._act(group, "images", self._runner.keep_images(pools, mine))

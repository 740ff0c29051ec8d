"""Start and stop the instances of this machine, and check which are ready.

Every call may be repeated after a crash at any point. The reconciler decides what to start and
stop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from cloudcore.account_rows import handle_of
from cloudcore.compute import credentials, instances, rollout
from cloudcore.compute.credentials import InstanceIdentity, RunningInstance
from cloudcore.compute.driver import InstanceSpec, InstanceState
from cloudcore.compute.images import ImageRoot
from cloudcore.compute.instance_pool import ROLE_REFUSED, Instance, InstancePool, InstanceStatus
from cloudcore.compute.rows import POOLS
from cloudcore.db.base import Connection
from cloudcore.jobs.queue import later
from cloudcore.network.driver import InterfacePlan
from cloudcore.nodes.control_groups import Bounds

if TYPE_CHECKING:
    from cloudcore.compute.needs import ComputeNeeds
    from cloudcore.compute.shim_instances import ShimInstances

PROCESSES: Final = 512
"""The most processes of an instance, threads included."""
GRACE_SECONDS: Final = 10
"""Between SIGTERM and SIGKILL."""
RIGHT_SECONDS: Final = 60
"""How long instances are started without another check that the pool may fetch their image."""
_PROBE_SECONDS: Final = 1.0
_QUIET_SECONDS: Final = 0.2
"""A connection through the shim that lasts this long was accepted by the instance's program: the
shim closes it at once if the program refuses it."""
_AGAIN_SECONDS: Final = 5
"""Between two probes of the port of an instance that is ready."""
_FAILING_SECONDS: Final = 15
"""A ready instance is unhealthy after its port has accepted no connection for this long."""


class _Image(NamedTuple):
    """An image, and the pool whose right to fetch the image was checked."""

    pool_id: str
    reference: str
    digest: str


class InstanceRunner:
    """Starts and stops instances for the reconciler, and checks which are ready."""

    def __init__(self, needs: ComputeNeeds, driver: ShimInstances) -> None:
        self._needs = needs
        self._driver = driver
        self._roots: dict[_Image, ImageRoot] = {}
        """The images with which instances were started; the image store must not remove them."""
        self._allowed_at: dict[_Image, int] = {}
        """When the pool's right to each image was checked last."""
        self._accepted_at: dict[str, int] = {}
        """When its port last accepted a connection, by the id of the instance."""
        self._failing: dict[str, int] = {}
        """Since when its port accepts no connections, by the id of the instance."""

    async def root_of(self, pool: InstancePool, instance: Instance) -> ImageRoot:
        """Return an instance's image; fetch it again after a restart of the service.

        The pool's right to the image was checked at most `RIGHT_SECONDS` ago.

        Raise `ImageRefused` if the image is gone, or the pool may not fetch it any more;
        `PlatformError` if fetching is temporarily impossible.
        """
        images, now = self._needs.images, self._needs.clock()
        image = _Image(pool.id, instance.image, instance.image_digest)
        pinned = f"{instance.image.partition('@')[0]}@{instance.image_digest}"
        if image not in self._roots:
            fetched = await images.fetch(pool.account_id, pool.role, pinned)
            self._roots[image] = fetched
        elif now < later(self._allowed_at[image], RIGHT_SECONDS):
            return self._roots[image]
        else:
            await images.check_right(pool.account_id, pool.role, pinned)
        self._allowed_at[image] = now
        return self._roots[image]

    async def bring_up(self, pool: InstancePool, instance: Instance, root: ImageRoot) -> None:
        """Start an instance with its network and credentials, and then its program.

        Raise `SandboxFailed` if it cannot be started, `PlatformError` if that is temporarily
        impossible.
        """
        needs, driver, version = self._needs, self._driver, instance.version
        of_vpc = pool.vpc_id if instance.interface_id is not None else None
        has_network = of_vpc is not None and needs.network.namespace_of(of_vpc) is not None
        netns = await driver.start(
            InstanceSpec(
                id=instance.id,
                hostname=f"i-{instance.id[-12:]}",
                root=root,
                command=version.command,
                environment=version.environment,
                bounds=Bounds(version.memory_mb, version.cpu_millis, PROCESSES),
                disk_mb=needs.disk_mb,
                ports=instance.ports,
                has_network=has_network,
            )
        )
        if has_network and netns is not None:
            assert of_vpc is not None
            await needs.network.attach(of_vpc, _interface(pool, instance), netns)
        identity = await needs.database.read(self._identity, pool, instance)
        folder = driver.folder(instance.id)
        await asyncio.to_thread(credentials.write_identity, folder, identity)
        if pool.role is not None:
            await self._renew({pool.id: pool}, [instance])
        await driver.go(instance.id)

    async def take_down(self, pool: InstancePool, instance: Instance) -> None:
        """Remove everything of an instance from this machine."""
        await self._driver.stop(instance.id, GRACE_SECONDS)
        if instance.interface_id is not None and pool.vpc_id is not None:
            await self._needs.network.detach(pool.vpc_id, instance.interface_id)
        await self._driver.remove(instance.id)
        for each in (self._accepted_at, self._failing):
            each.pop(instance.id, None)

    async def statuses(
        self, found: Iterable[Instance], seen: Mapping[str, InstanceState], now: int
    ) -> Mapping[str, InstanceStatus]:
        """Map id to status, for each instance whose program runs and which is not leaving."""
        up = {each for each, state in seen.items() if state.status == "running"}
        running = [each for each in found if each.id in up and not each.is_leaving]
        asked = [each for each in running if each.ports and self._is_due(each, now)]
        answers = await asyncio.gather(*map(self._accepts, asked))
        for each, accepts in zip(asked, answers, strict=True):
            if accepts:
                self._accepted_at[each.id] = now
                self._failing.pop(each.id, None)
            else:
                self._failing.setdefault(each.id, now)
        return {each.id: self._status(each, seen[each.id], now) for each in running}

    async def renew(self, pools: Mapping[str, InstancePool], mine: Sequence[Instance]) -> None:
        """Renew the credentials of running instances before they expire."""
        up = [each for each in mine if each.status in ("running", "unhealthy")]
        await self._renew(pools, up)

    async def keep_images(
        self, pools: Mapping[str, InstancePool], mine: Iterable[Instance]
    ) -> None:
        """Remove from this machine the images that no pool and no instance uses."""
        wanted = {each.image_digest for each in mine}
        wanted |= {each.image_digest for each in pools.values() if each.image_digest is not None}
        for image in list(self._roots):
            if image.pool_id not in pools or image.digest not in wanted:
                del self._roots[image], self._allowed_at[image]
        await self._needs.images.keep_only(wanted)

    def _identity(self, tx: Connection, pool: InstancePool, instance: Instance) -> InstanceIdentity:
        needs = self._needs
        return InstanceIdentity(
            id=instance.id,
            pool_id=pool.id,
            pool_name=pool.name,
            account_id=pool.account_id,
            account_handle=handle_of(tx, pool.account_id),
            region=pool.region,
            node=needs.node.name,
            address_ipv4=_ipv4(instance),
            address_ipv6=instance.address_ipv6,
            url=needs.url,
        )

    async def _renew(self, pools: Mapping[str, InstancePool], mine: Sequence[Instance]) -> None:
        """Renew credentials; add a fault to the pool of each instance that could not get any."""
        needs, has_role = self._needs, [each for each in mine if _role_of(pools, each) is not None]
        if not has_role:
            return
        problems = await credentials.renew(
            needs.database,
            needs.roles,
            [
                RunningInstance(
                    each.id, each.account_id, self._driver.folder(each.id), _role_of(pools, each)
                )
                for each in has_role
            ],
            lambda tx, each: instances.holds(tx, each.id, each.account_id),
            needs.clock(),
        )
        for pool in pools.values():
            ids = {each.id for each in has_role if each.pool.id == pool.id}
            noted = {each.subject for each in pool.faults if each.code == ROLE_REFUSED}
            if ids & (noted | problems.keys()):
                await needs.database.write(_note_problems, pool, ids, problems, needs.clock())

    def _is_due(self, instance: Instance, now: int) -> bool:
        """Return True if it is time to probe an instance's port."""
        if not instance.is_ready or instance.id in self._failing:
            return True
        return now >= later(self._accepted_at.get(instance.id, 0), _AGAIN_SECONDS)

    def _status(self, instance: Instance, seen: InstanceState, now: int) -> InstanceStatus:
        """Return the status of an instance whose program runs, by the last probes of its port."""
        started_at = seen.started_at or now
        if not instance.ports:
            is_ready = now >= later(started_at, rollout.READY_SECONDS)
            return "running" if is_ready else "starting"
        failing = self._failing.get(instance.id)
        if failing is None:
            return "running"
        if instance.is_ready:
            return "running" if now < later(failing, _FAILING_SECONDS) else "unhealthy"
        is_new = now < later(started_at, rollout.UNHEALTHY_SECONDS)
        return "starting" if is_new and instance.status != "unhealthy" else "unhealthy"

    async def _accepts(self, instance: Instance) -> bool:
        """Return True if the first port of an instance accepts a connection."""
        ports = self._driver.folder(instance.id) / "ports"
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_PROBE_SECONDS):
                return await _lasts(ports, str(instance.ports[0]))
        return False


async def _lasts(folder: Path, name: str) -> bool:
    """Return True if the socket accepts a connection and does not close it at once."""
    # Through a descriptor, as the path of a socket has at most 107 bytes (unix(7)).
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        path = f"/proc/self/fd/{descriptor}/{name}"
        reader, writer = await asyncio.open_unix_connection(path)
    finally:
        os.close(descriptor)
    try:
        async with asyncio.timeout(_QUIET_SECONDS):
            return bool(await reader.read(1))
    except TimeoutError:
        return True
    finally:
        writer.close()


def _role_of(pools: Mapping[str, InstancePool], instance: Instance) -> str | None:
    pool = pools.get(instance.pool.id)
    return None if pool is None else pool.role


def _ipv4(instance: Instance) -> str | None:
    return None if instance.address is None or ":" in instance.address else instance.address


def _interface(pool: InstancePool, instance: Instance) -> InterfacePlan:
    """Return the plan of an instance's interface, without groups: those of the VPC's plan apply."""
    assert instance.interface_id is not None
    assert pool.subnet is not None
    ipv4, ipv6 = _ipv4(instance), instance.address_ipv6
    return InterfacePlan(
        instance.interface_id,
        pool.subnet,
        None if ipv4 is None else IPv4Address(ipv4),
        None if ipv6 is None else IPv6Address(ipv6),
    )


def _note_problems(
    tx: Connection, seen: InstancePool, ids: Iterable[str], problems: Mapping[str, str], now: int
) -> None:
    """Add a fault to a pool for each of these instances that has no credentials.

    Remove that fault for the other instances in `ids`.
    """
    asked = set(ids)

    def noted(pool: InstancePool) -> InstancePool:
        over = asked - problems.keys()
        faults = (x for x in pool.faults if x.code != ROLE_REFUSED or x.subject not in over)
        pool = structs.replace(pool, faults=tuple(faults))
        for each in sorted(asked & problems.keys()):
            words = f"it has no credentials of the role: {problems[each]}"
            pool = pool.with_fault(ROLE_REFUSED, words, now, each)
        return pool

    POOLS.change(tx, seen.account_id, seen.id, noted, now)

"""Open the stores and families of one process, make its planes, and run its background work.

What only one edition needs is in `dev` or in `serve`; importing `serve` takes 0.3 s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple

from cloudcore.clock import Clock, system_clock, uuid7
from cloudcore.db.base import CommitMark, Database
from cloudcore.db.opening import is_postgresql, open_database, sqlite_path
from cloudcore.db.rows import forget_all
from cloudcore.db.statement import compile_all
from cloudcore.errors import Conflict, PlatformError
from cloudcore.events import EVENT_TYPES_BY_ACTION
from cloudcore.family import Family, skus_of
from cloudcore.jobs.background import record_before_stop, repeated, running
from cloudcore.jobs.dead_holders import DeadHolders, WorkerLocks, noticing_deaths
from cloudcore.jobs.schedule import Scheduled, Scheduler
from cloudcore.jobs.worker import JobPace, JobWorker, divide_by_slots
from cloudcore.metering.needs import METER
from cloudcore.metering.sampling import SAMPLES
from cloudcore.metering.sku import SKUS
from cloudcore.nodes.node import NODE
from cloudcore.nodes.rows import PLACINGS
from cloudcore.nodes.watcher import begin as begin_watching
from cloudcore.ports import Install, Offer, Opening, known
from cloudcore.quotas.needs import QUOTAS, KnownQuota
from cloudcore.serving.asgi import Receive, Scope, Send
from cloudcore.serving.counters import Count, Gauge, Measure, count_nothing, measure_nothing
from cloudcore.serving.dispatch import Application, Dispatcher
from cloudcore.serving.kept_answers import KeptAnswers
from cloudcore.serving.planes import Planes
from cloudcore.web.health import Readiness
from registry.blobstore.base import ObjectUnknown
from registry.blobstore.disk.disk_io import check_folder_room, make_folder
from registry.blobstore.opening import make_folders, open_links, open_store
from registry.blobstore.store import BlobStore, BlobSweeper
from registry.composition.fleet import check_of, end_if_differs
from registry.composition.metrics import ChorePeriods, folders_of, measure
from registry.composition.planes import dispatcher, planes_of
from registry.composition.stores import STORES, RegistryStores
from registry.composition.unfinished_restoration import check_is_whole
from registry.counters import DAMAGED, JOBS
from registry.gc import database_rollback
from registry.gc.database_rollback import Generations
from registry.gc.orphans import take_back_owned
from registry.metadata.collector.generations import accepted_at
from registry.metadata.database import migrate
from registry.services.blobs.upload_leases import RENEW_SECONDS, Leases
from registry.services.changes import RegistryHost
from registry.services.context import ServiceContext
from registry.services.images.pulls import PullLog
from registry.settings.settings import Settings

if TYPE_CHECKING:
    from registry.console.app import Console


_PULL_FLUSH_SECONDS = 10
_FORGET_SECONDS = 3600

_log = logging.getLogger(__name__)


def prepare(settings: Settings, *, is_restoration: bool = False) -> None:
    """Create the data folder and migrate the database. Call this once, before any worker starts.

    Raise `SettingsError` if a restoration into the folder was interrupted, unless `is_restoration`.
    """
    if not is_restoration:
        check_is_whole(settings)
    make_folder(settings.data)
    migrate(settings.database)
    make_folders(settings)


@asynccontextmanager
async def _recording_generations(ctx: ServiceContext, sweeper: BlobSweeper) -> AsyncIterator[None]:
    """Put back orphans that have a row; during the block, save generations in the store."""
    history = Generations(ctx, sweeper)
    await history.begin()
    try:
        await take_back_owned(ctx, sweeper)
    except PlatformError as error:  # the next scan tries again
        _log.warning("no orphan was put back: %s", error)
    # In each process: if only the holder of a lease did this, its death would leave a gap.
    async with repeated(database_rollback.EVERY_SECONDS, history.renew_if_due):
        yield
    await history.end()


class PlaneApplications(NamedTuple):
    """The ASGI applications of a worker process."""

    data: Application
    control: Application
    console: Console | None = None
    """The web console, a client of the control plane."""
    objects: Application | None = None
    """The S3 endpoint."""


@dataclass(frozen=True)
class Edition:
    """The families and planes that a command serves."""

    families: tuple[Family[Any], ...]
    offers: tuple[Offer, ...]
    """Values for ports that no family fills."""
    make_planes: Callable[
        [Opening, tuple[Family[Any], ...], Readiness], Awaitable[PlaneApplications]
    ]
    audits: bool = False
    """True if the edition has an audit log."""


class Registry:
    """The stores, planes and background work of one worker process.

    Without an `edition` it has only the stores, for commands that work on stored data. A `database`
    or `store` that is passed is closed by the caller. All workers of one server share one `mark`.
    """

    def __init__(
        self,
        settings: Settings,
        edition: Edition | None = None,
        *,
        database: Database | None = None,
        mark: CommitMark | None = None,
        store: BlobStore | None = None,
        clock: Clock = system_clock,
        new_id: Callable[[], str] = uuid7,
        pace: JobPace | None = None,
    ) -> None:
        self._settings = settings
        self._edition = edition
        self._database = database
        self._mark = mark
        self._store = store
        self._clock = clock
        self._new_id = new_id
        self._pace = pace
        self._stopping = Event()
        self._resources = AsyncExitStack()
        self._planes: PlaneApplications | None = None
        self.on_event: Count = count_nothing
        self.kept: KeptAnswers | None = None
        """Cached responses of the planes; None before the start, or if the cache is off."""
        self._measure: Measure = measure_nothing
        self._is_leaving = False

    @asynccontextmanager
    async def open(self, leases: Leases | None = None) -> AsyncIterator[RegistryStores]:
        """Open the stores for the block. A worker passes the `leases` of its uploads."""
        settings = self._settings
        async with AsyncExitStack() as resources:
            database, store = self._database, self._store
            if database is None:
                database = open_database(settings.database, self._mark, self._stopping, self.count)
                resources.push_async_callback(database.close)
            if store is None:
                store = await resources.enter_async_context(open_store(settings, self.count))
            links = resources.enter_context(open_links(settings, store))
            pulls = PullLog(database, self._clock, settings.region)
            ctx = ServiceContext(
                database=database,
                reader=store,
                writer=store,
                links=links,
                clock=self._clock,
                new_id=self._new_id,
                limits=settings.limits,
                pulls=pulls,
                registry_host=RegistryHost(settings.region, settings.pull_host),
                delays=settings.delays,
                leases=leases or Leases(self._new_id()),
                audits=self._edition is not None and self._edition.audits,
                on_damage=partial(self.count, DAMAGED, 1),
                count=self.count,
                upstream_allowed=settings.allowed_upstreams,
            )
            resources.push_async_callback(ctx.manifest_fetches.aclose)
            resources.push_async_callback(ctx.referrer_fetches.aclose)
            resources.push_async_callback(ctx.tag_list_fetches.aclose)
            yield RegistryStores(settings=settings, ctx=ctx, store=store)
            await record_before_stop(pulls.flush, "the last pulls")

    @asynccontextmanager
    async def open_planes(self) -> AsyncIterator[tuple[Opening, PlaneApplications]]:
        """Open the stores, families and planes of the edition, without background work."""
        async with self.open() as stores, AsyncExitStack() as resources:
            yield await self._make_planes(stores, resources)

    async def _make_planes(
        self, stores: RegistryStores, resources: AsyncExitStack
    ) -> tuple[Opening, PlaneApplications]:
        edition = self._edition
        assert edition is not None
        families, ctx, settings = edition.families, stores.ctx, stores.settings
        install = Install(
            ctx.database,
            ctx.clock,
            ctx.new_id,
            settings.region,
            settings.url,
            settings.own_urls,
        )
        own = [each for family in families for each in family.runtime.offers]
        told = {
            action: each
            for family in families
            for action, each in family.event_types_by_action.items()
        }
        offers = (
            known(STORES, stores),
            known(EVENT_TYPES_BY_ACTION, told),
            known(SKUS, skus_of(families)),
            known(
                SAMPLES,
                {name: each for of in families for name, each in of.runtime.samples.items()},
            ),
            known(METER, ctx.pulls.meter),
            known(QUOTAS, quotas_of(families)),
            known(PLACINGS, [each for family in families for each in family.runtime.placings]),
            known(NODE, settings.node.node(settings.data)),
            *own,
            *edition.offers,
        )
        opening = Opening(install, resources, offers)
        for family in families:
            await opening.needs_of(family)
        planes = await edition.make_planes(opening, families, self.readiness(ctx))
        return opening, planes

    async def rehearse(self) -> None:
        """Open and close everything that `start` opens, without background work.

        The parent does this before it forks workers, which then share modules and compiled
        statements.
        """
        async with self.open_planes() as (opening, _planes):
            assert self._edition is not None
            for family in self._edition.families:
                needs = await opening.needs_of(family)
                family.runtime.job_kinds(needs)
                family.runtime.schedule(needs)
                family.runtime.on_node(needs)
        compile_all(for_postgresql=is_postgresql(self._settings.database))

    async def start(self) -> None:
        """Open the stores, make the planes, and start background work; on failure, undo all."""
        async with AsyncExitStack() as resources:
            await self._start(resources)
            self._resources = resources.pop_all()

    async def _start(self, resources: AsyncExitStack) -> None:
        assert self._edition is not None
        enter, families = resources.enter_async_context, self._edition.families
        locks, worker_id = WorkerLocks(self._settings.data / "workers"), uuid7()
        resources.enter_context(locks.locked(worker_id))
        own_database = not is_postgresql(self._settings.database)
        leases = Leases(worker_id, locks.is_dead, has_own_database=own_database)
        stores = await enter(self.open(leases))
        ctx = stores.ctx
        resources.push_async_callback(ctx.fills.aclose)
        await enter(_recording_generations(ctx, stores.store))
        opening, self._planes = await self._make_planes(stores, resources)
        most_bytes = self._settings.limits.kept_answers_bytes
        self.kept = KeptAnswers(ctx.database, ctx.clock, most_bytes) if most_bytes else None
        opened = [(family.runtime, await opening.needs_of(family)) for family in families]
        for runtime, needs in opened:
            await runtime.begin(needs, resources)
        # In each process: its pulls are counted in memory, and its uploads are leased to it.
        await enter(repeated(_PULL_FLUSH_SECONDS, ctx.pulls.flush))
        await enter(repeated(RENEW_SECONDS, partial(leases.renew, ctx.database, ctx.clock)))
        kinds = [kind for runtime, needs in opened for kind in runtime.job_kinds(needs)]
        watches = [each for runtime, needs in opened for each in runtime.on_node(needs)]
        node = await opening.get(NODE)
        divided = [*divide_by_slots(kinds, self._pace or JobPace())]
        workers = [
            JobWorker(
                ctx.database,
                chosen,
                clock=ctx.clock,
                new_id=ctx.new_id,
                pace=pace,
                note_end=lambda state: self.count(f"{JOBS}.{state}", 1),
                holder=worker_id,
            )
            for chosen, pace in divided
        ]

        def give_up(error: Conflict) -> None:
            for worker, (chosen, _) in zip(workers, divided, strict=True):
                if any(kind.node for kind in chosen):
                    worker.give_up()
            end_if_differs(error)

        check = await asyncio.to_thread(check_of, self._settings)
        watchers = await begin_watching(ctx.database, ctx.clock, node, watches, give_up, check)
        chores = [chore for runtime, needs in opened for chore in runtime.schedule(needs)]
        chores.append(expiry(families, ctx.database, ctx.clock))
        scheduler = Scheduler(
            ctx.database, chores, clock=ctx.clock, new_id=ctx.new_id, holder=worker_id
        )
        periods = ChorePeriods({each.name: each.every_seconds for each in chores}, ctx.clock())
        self._measure = partial(measure, self._settings, ctx, folders_of(self._settings), periods)
        await enter(noticing_deaths(DeadHolders(ctx.database, ctx.clock, locks.dead), worker_id))
        await enter(running(*watchers, *workers, scheduler))

    def count(self, key: str, amount: int) -> None:
        """Add `amount` to the counter of an event (`registry.counters`)."""
        self.on_event(key, amount)

    async def measure(self) -> Sequence[Gauge]:
        """Return the gauges of the registry; an empty list before it has started."""
        return await self._measure()

    async def stop(self) -> None:
        """Undo `start`, in reverse order; if the database is unreachable, skip final writes."""
        self._stopping.set()
        await self._resources.aclose()

    def readiness(self, ctx: ServiceContext) -> Readiness:
        """Return the probes of the database and the store."""

        async def database() -> None:
            await ctx.database.read(accepted_at)  # any query will do

        async def reads() -> None:
            with suppress(ObjectUnknown):
                await ctx.reader.check(ctx.new_id(), 0)

        async def writes() -> None:
            await ctx.writer.check_room()
            if not is_postgresql(self._settings.database):
                folder = sqlite_path(self._settings.database).parent
                await asyncio.to_thread(check_folder_room, folder)

        probes = {"database": database, "reads": reads, "writes": writes}
        return Readiness(probes, lambda: self._is_leaving)

    def leave(self) -> None:
        """Make the readiness check fail, because the server is about to stop."""
        self._is_leaving = True

    def data_plane(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve a request to ``/v2``."""
        assert self._planes is not None
        return self._planes.data(scope, receive, send)

    async def objects_plane(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request to the S3 endpoint."""
        assert self._planes is not None
        assert self._planes.objects is not None, "the settings name its port or host"
        await self._planes.objects(scope, receive, send)

    @property
    def planes(self) -> Planes:
        """Return the planes that this install serves."""
        return planes_of(self._settings)

    async def control_plane(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request to ``/v1``, the console or another path; confirm ASGI lifespan events."""
        if scope["type"] != "lifespan":
            assert self._planes is not None
            console = self._planes.console
            plane = console if console and console.owns(scope) else self._planes.control
            await plane(scope, receive, send)
            return
        for event in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{event}.complete"})


def quotas_of(families: Sequence[Family[Any]]) -> Sequence[KnownQuota]:
    """Return the quotas of families, each with the function that counts its use, if any."""
    counted = {each.quota.name: each for family in families for each in family.runtime.uses}
    return [
        KnownQuota(quota, counted.get(quota.name)) for family in families for quota in family.quotas
    ]


def expiry(families: Sequence[Family[Any]], database: Database, clock: Clock) -> Scheduled:
    """Return the scheduled chore that deletes expired rows of all families."""
    forget = partial(forget_ended, database, clock, families)
    return Scheduled("platform.ended_rows", _FORGET_SECONDS, forget)


async def forget_ended(database: Database, clock: Clock, families: Sequence[Family[Any]]) -> None:
    """Delete the expired rows of all families."""
    for family in families:
        for forget in family.runtime.expiry:
            await forget_all(database, forget, clock())


def application(registry: Registry) -> Dispatcher:
    """Return the ASGI application of a registry; its lifespan starts and stops the registry."""

    async def start() -> None:
        await registry.start()
        made.kept = registry.kept

    made = dispatcher(
        registry.data_plane,
        registry.control_plane,
        registry.objects_plane,
        planes=registry.planes,
        startup=start,
        shutdown=registry.stop,
    )
    registry.on_event = made.count
    made.leave = registry.leave
    made.measure = registry.measure
    return made

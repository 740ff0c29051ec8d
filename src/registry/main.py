"""The composition root: settings become stores, stores become services, services two planes.

Constructors are called in order, here and in `served`, and nowhere else; nothing is registered by
being imported. What only ``entrepot serve`` needs is in `served`: a third of a second's imports.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from cloudcore.clock import Clock, system_clock, uuid7
from cloudcore.db.base import Database
from cloudcore.db.opening import is_postgresql, open_database, sqlite_path
from cloudcore.errors import PlatformError
from cloudcore.identity import sessions
from cloudcore.identity.rows.invitations import forget_invitations
from cloudcore.jobs import outbox, queue
from cloudcore.jobs.schedule import Scheduled, Scheduler
from cloudcore.jobs.worker import JobWorker
from cloudcore.serving.body import Receive, Scope, Send
from cloudcore.serving.dispatch import Application, Dispatcher
from cloudcore.web import envelope, idempotency, ratelimit
from cloudcore.web.app import create_app as create_control_plane
from registry.blobstore.base import BlobSweeper, ObjectUnknown
from registry.blobstore.filesystem import FilesystemStore
from registry.blobstore.medium import check_folder_room
from registry.browsers.loopback_guard import LoopbackGuard
from registry.control.health import Readiness, readiness_handler, report_alive
from registry.distribution import errors
from registry.distribution.app import DataPlane
from registry.distribution.auth import OpenAccess
from registry.gc import generations
from registry.gc.generations import Generations
from registry.gc.orphans.quarantine import take_back_owned
from registry.gc.orphans.scan import EVERY_SECONDS, Patrol
from registry.gc.purge.images import forget_tag_history, purge_tombstones
from registry.gc.purge.repositories import purge_deleted_repositories
from registry.gc.purge.tags import purge_deleted_tags
from registry.gc.purge.uploads import discard_expired_uploads
from registry.jobs import job_kinds, running
from registry.metadata import logins
from registry.metadata.collector.generations import accepted_at
from registry.metadata.database import migrate
from registry.metadata.images import pins
from registry.metadata.repositories.live import add_account, find_account
from registry.planes import dispatcher
from registry.services.changes import RegistryHost
from registry.services.collector_runs import start_due_runs as start_due_collections
from registry.services.context import ServiceContext
from registry.services.images.manifest_reading import ProcessReader
from registry.services.images.pulls import PullLog
from registry.services.lifecycle.runs import start_due_runs
from registry.settings import Settings

if TYPE_CHECKING:
    from registry.console.app import Console

DEV_ACCOUNT = "dev"
_ABSENT = (
    "there is nothing at this path: `entrepot dev` serves /v2 alone. The control plane and the "
    "console come with `entrepot init` and `entrepot serve`"
)

_PULL_FLUSH_SECONDS = 10
_SWEEP_SECONDS = 3600
_PURGE_SECONDS = 60
_COLLECT_SECONDS = 300

_log = logging.getLogger(__name__)


def prepare(settings: Settings) -> None:
    """Make the data folder and bring the database up to date; done once, before any worker."""
    settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    migrate(settings.database)
    FilesystemStore(settings.blobs)


@asynccontextmanager
async def open_context(
    settings: Settings,
    clock: Clock = system_clock,
    on_damage: Callable[[], None] = lambda: None,
) -> AsyncIterator[ServiceContext]:
    """Open the stores of one process and close them at the end."""
    database = open_database(settings.database)
    manifest_reader = ProcessReader()
    try:
        store = FilesystemStore(settings.blobs)
        pulls = PullLog(database, clock)
        yield ServiceContext(
            database=database,
            reader=store,
            writer=store,
            clock=clock,
            new_id=uuid7,
            limits=settings.limits,
            pulls=pulls,
            site=RegistryHost(settings.region, settings.pull_host),
            delays=settings.delays,
            manifest_reader=manifest_reader,
            on_damage=on_damage,
        )
        await pulls.flush()
    finally:
        manifest_reader.close()
        await database.close()


@asynccontextmanager
async def open_sweeper(settings: Settings) -> AsyncIterator[BlobSweeper]:
    """Open the way to delete bytes, which is the collector's alone."""
    store = FilesystemStore(settings.blobs)
    try:
        yield store
    finally:
        store.close()


@asynccontextmanager
async def _ready_to_collect(ctx: ServiceContext, sweeper: BlobSweeper) -> AsyncIterator[None]:
    """Begin generations in the block, and put back orphans that a wrong database did not know."""
    history = Generations(ctx, sweeper)
    await history.begin()
    try:
        await take_back_owned(ctx, sweeper)
    except PlatformError as error:  # the patrol tries again
        _log.warning("no orphan was put back: %s", error)
    # This process's own, from start to stop: under a lease, a dead holder would leave a gap.
    async with repeated(generations.EVERY_SECONDS, history.go_on):
        yield
    await history.end()


class Planes(NamedTuple):
    """The two applications of a worker process."""

    data: Application
    control: Application
    console: Console | None = None
    """Pages over the control plane."""


class Registry:
    """What one worker process runs: stores, both planes, and the work done in the background."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._resources = AsyncExitStack()
        self._planes: Planes | None = None
        self.on_damage: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Open the stores, make the planes, begin the chores."""
        enter = self._resources.enter_async_context
        ctx = await enter(open_context(self._settings, on_damage=self._note_damage))
        sweeper = await enter(open_sweeper(self._settings))
        await enter(_ready_to_collect(ctx, sweeper))
        # This process's own: what it noted in memory.
        await enter(repeated(_PULL_FLUSH_SECONDS, ctx.pulls.flush))
        worker = self.make_worker(ctx, sweeper)
        scheduler = self.make_scheduler(ctx, sweeper)
        self._planes = await self.make_planes(ctx, self._resources)
        await enter(running(worker))
        await enter(running(scheduler))

    def _note_damage(self) -> None:
        self.on_damage()

    def make_worker(self, ctx: ServiceContext, sweeper: BlobSweeper) -> JobWorker:
        """Return what runs jobs beside the planes."""
        return JobWorker(ctx.database, job_kinds(ctx, sweeper), clock=ctx.clock, new_id=ctx.new_id)

    def make_scheduler(self, ctx: ServiceContext, sweeper: BlobSweeper) -> Scheduler:
        """Return what takes turns at the chores that all processes share."""
        return Scheduler(ctx.database, schedule(ctx, sweeper), clock=ctx.clock, new_id=ctx.new_id)

    async def make_planes(self, ctx: ServiceContext, resources: AsyncExitStack) -> Planes:
        """Return the two applications; what they need to be closed goes to `resources`."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Undo `start`, in reverse."""
        await self._resources.aclose()

    def readiness(self, ctx: ServiceContext) -> Readiness:
        """Return the probes of the database and the store."""

        async def database() -> None:
            await ctx.database.read(accepted_at)  # any read of a table will do

        async def reads() -> None:
            with suppress(ObjectUnknown):
                await asyncio.to_thread(ctx.reader.open, ctx.new_id())

        async def writes() -> None:
            await asyncio.to_thread(ctx.writer.check_room)
            if not is_postgresql(self._settings.database):
                folder = sqlite_path(self._settings.database).parent
                await asyncio.to_thread(check_folder_room, folder)

        return Readiness({"database": database, "reads": reads, "writes": writes})

    def data_plane(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer a request to ``/v2``."""
        assert self._planes is not None
        return self._planes.data(scope, receive, send)

    async def control_plane(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer any other request, or say that start and stop went well."""
        if scope["type"] != "lifespan":
            assert self._planes is not None
            console = self._planes.console
            answer = console if console and console.owns(scope) else self._planes.control
            await answer(scope, receive, send)
            return
        for event in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{event}.complete"})


class DevRegistry(Registry):
    """``entrepot dev``: one account, no sign-in, health beside the data plane."""

    async def make_planes(self, ctx: ServiceContext, resources: AsyncExitStack) -> Planes:
        """Make the account, unless it is there; let every program of this machine in."""
        del resources
        if await ctx.database.read(find_account, DEV_ACCOUNT) is None:
            await ctx.database.write(add_account, uuid7(), DEV_ACCOUNT, ctx.clock())
        control = create_control_plane(
            [report_alive, readiness_handler(self.readiness(ctx))], absent=_ABSENT
        )
        hosts = (*self._settings.hosts, self._settings.pull_host)
        return Planes(
            LoopbackGuard(DataPlane(ctx, OpenAccess(DEV_ACCOUNT)), errors.refuse, hosts),
            LoopbackGuard(cast("Application", control), envelope.refuse, hosts),
        )


def schedule(ctx: ServiceContext, sweeper: BlobSweeper) -> Sequence[Scheduled]:
    """Return the chores that come round, of which one process at a time takes a turn."""
    return [
        Scheduled(
            "registry.expired_uploads", _SWEEP_SECONDS, partial(discard_expired_uploads, ctx)
        ),
        Scheduled(
            "registry.deleted_repositories",
            _PURGE_SECONDS,
            partial(purge_deleted_repositories, ctx),
        ),
        Scheduled("registry.deleted_images", _PURGE_SECONDS, partial(purge_tombstones, ctx)),
        Scheduled("registry.deleted_tags", _PURGE_SECONDS, partial(purge_deleted_tags, ctx)),
        Scheduled("registry.lifecycle", _PURGE_SECONDS, partial(start_due_runs, ctx)),
        Scheduled(
            "registry.garbage_collection", _COLLECT_SECONDS, partial(start_due_collections, ctx)
        ),
        Scheduled("registry.orphan_scan", EVERY_SECONDS, Patrol(ctx, sweeper).turn),
        Scheduled("registry.tag_history", _SWEEP_SECONDS, partial(forget_tag_history, ctx)),
        Scheduled(
            "platform.ended_rows", _SWEEP_SECONDS, partial(forget_ended, ctx.database, ctx.clock)
        ),
    ]


async def forget_ended(database: Database, clock: Clock) -> None:
    """Delete rows whose time is over: sessions, invitations, retries, rates, pins, jobs, events."""
    for forget in (
        sessions.forget_ended,
        forget_invitations,
        logins.forget_expired,
        pins.forget_over,
        idempotency.forget_expired,
        ratelimit.forget_ended,
        queue.forget_finished,
        outbox.forget_delivered,
    ):
        await database.write_relaxed(forget, clock())
    await outbox.forget_undelivered(database, clock)


def create_dev_app(settings: Settings) -> Dispatcher:
    """Return the ASGI application of ``entrepot dev``; any ASGI server can run it."""
    return application(DevRegistry(settings))


def application(registry: Registry) -> Dispatcher:
    """Return the ASGI application of a registry; it starts and stops with it."""
    made = dispatcher(
        registry.data_plane,
        registry.control_plane,
        startup=registry.start,
        shutdown=registry.stop,
    )
    registry.on_damage = made.note_damage
    return made


@asynccontextmanager
async def repeated(seconds: float, chore: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Do a chore now and then while the block runs."""
    task = asyncio.create_task(_repeat(seconds, chore))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _repeat(seconds: float, chore: Callable[[], Awaitable[object]]) -> None:
    """Do a chore now and then for as long as the process runs; a failure is logged and retried."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await chore()
        except PlatformError as error:
            _log.warning("a background chore failed: %s", error)
        except Exception:  # noqa: BLE001 - the next turn tries again
            _log.exception("a background chore failed")

"""The composition root: settings become stores, stores become services, services two planes.

Constructors are called in order, here and nowhere else; nothing is registered by being imported.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import cast

from cloudcore.clock import Clock, system_clock, uuid7
from cloudcore.db.base import Database
from cloudcore.db.opening import open_database
from cloudcore.http import create_app as create_control_plane
from registry.blobstore.filesystem import FilesystemStore
from registry.control.health import readiness, report_alive
from registry.distribution.app import DataPlane
from registry.distribution.auth import OpenAccess
from registry.distribution.body import Receive, Scope, Send
from registry.errors import StoreUnavailable
from registry.gc.fsck import Progress, Report, check
from registry.gc.uploads import discard_expired_uploads
from registry.metadata.database import migrate
from registry.metadata.repositories import add_account, find_account
from registry.services.context import Context
from registry.services.pulls import PullLog
from registry.serving.dispatch import Application, Dispatcher
from registry.serving.logs import configure_logging
from registry.serving.server import run
from registry.settings import Settings, SettingsError

DEV_ACCOUNT = "dev"

_PULL_FLUSH_SECONDS = 10
_UPLOAD_SWEEP_SECONDS = 3600

_log = logging.getLogger(__name__)


def prepare(settings: Settings) -> None:
    """Make the data folder and bring the database up to date; done once, before any worker."""
    settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    migrate(settings.database)
    FilesystemStore(settings.blobs)


@asynccontextmanager
async def open_context(settings: Settings, clock: Clock = system_clock) -> AsyncIterator[Context]:
    """Open the stores of one process and close them at the end."""
    database = open_database(settings.database)
    try:
        store = FilesystemStore(settings.blobs)
        pulls = PullLog(database, clock)
        yield Context(
            database=database,
            reader=store,
            writer=store,
            clock=clock,
            new_id=uuid7,
            limits=settings.limits,
            pulls=pulls,
        )
        await pulls.flush()
    finally:
        await database.close()


async def ensure_account(database: Database, handle: str, now: int) -> None:
    """Make the account of ``entrepot dev`` unless it is there."""
    if await database.read(find_account, handle) is None:
        await database.write(add_account, uuid7(), handle, now)


class DevRegistry:
    """What ``entrepot dev`` runs in each worker process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._resources = AsyncExitStack()
        self._ctx: Context | None = None
        self._data_plane: DataPlane | None = None

    async def start(self) -> None:
        """Open the stores, make the account, begin the chores."""
        enter = self._resources.enter_async_context
        ctx = self._ctx = await enter(open_context(self._settings))
        await ensure_account(ctx.database, DEV_ACCOUNT, ctx.clock())
        await enter(_repeated(_PULL_FLUSH_SECONDS, ctx.pulls.flush))
        await enter(_repeated(_UPLOAD_SWEEP_SECONDS, partial(discard_expired_uploads, ctx)))
        self._data_plane = DataPlane(ctx, OpenAccess(DEV_ACCOUNT))

    async def stop(self) -> None:
        """Undo `start`, in reverse."""
        await self._resources.aclose()

    async def probe(self) -> None:
        """Ask the database and the store whether they can serve; raise `Unavailable` if not."""
        if self._ctx is None:
            raise StoreUnavailable("the registry is starting")
        await self._ctx.database.read(find_account, DEV_ACCOUNT)
        await asyncio.to_thread(self._ctx.writer.discard, self._ctx.new_id())

    def data_plane(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer a request to ``/v2``."""
        assert self._data_plane is not None
        return self._data_plane(scope, receive, send)


def create_dev_app(settings: Settings) -> Dispatcher:
    """Return the ASGI application of ``entrepot dev``; any ASGI server can run it."""
    registry = DevRegistry(settings)
    app = create_control_plane([report_alive, readiness(registry.probe)])
    control_plane = cast("Application", app)  # Litestar types the same messages as unions
    return Dispatcher(
        registry.data_plane, control_plane, startup=registry.start, shutdown=registry.stop
    )


def serve_dev(settings: Settings) -> int:
    """Run ``entrepot dev`` until it is told to stop; return its exit status."""
    configure_logging()
    prepare(settings)
    return run(
        partial(create_dev_app, settings),
        settings.host,
        settings.port,
        workers=settings.workers,
        metrics_bind=_bind(settings.metrics),
        on_ready=partial(_greet, settings),
    )


async def check_data(
    settings: Settings, tell: Callable[[Progress], None], *, read_objects: bool
) -> Report:
    """Compare the store with the metadata; see `registry.gc.fsck`."""
    prepare(settings)
    database = open_database(settings.database)
    try:
        store = FilesystemStore(settings.blobs)
        return await check(database, store, tell, read_objects=read_objects)
    finally:
        await database.close()


def _greet(settings: Settings, url: str) -> None:
    """Tell a newcomer what to type next."""
    registry = url.removeprefix("http://")
    sys.stdout.write(
        f"Entrepot is ready on {url} (data in {settings.data}, stop with Ctrl+C). Try:\n"
        f"  docker tag IMAGE {registry}/{DEV_ACCOUNT}/hello:1\n"
        f"  docker push {registry}/{DEV_ACCOUNT}/hello:1\n"
        f"  docker pull {registry}/{DEV_ACCOUNT}/hello:1\n"
        f"  podman push --tls-verify=false IMAGE {registry}/{DEV_ACCOUNT}/hello:1\n"
    )
    sys.stdout.flush()


def _bind(address: str) -> tuple[str, int] | None:
    """Return ``host:port`` taken apart; None for the empty string."""
    if not address:
        return None
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise SettingsError(f"an address is HOST:PORT, not {address!r}")
    return host.strip("[]"), int(port)


@asynccontextmanager
async def _repeated(seconds: float, chore: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
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
        except Exception:  # noqa: BLE001 - the next turn tries again
            _log.exception("a background chore failed")

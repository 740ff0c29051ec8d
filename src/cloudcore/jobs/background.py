"""Run background tasks of a process beside its requests.

Every serving process runs a worker and a scheduler; all processes share one queue and one schedule
(`cloudcore.jobs`). Work of a single process, such as writing its in-memory counts to the database,
is repeated by `repeated`. Work under a lease is cancelled when the lease is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from cloudcore.errors import PlatformError, Unavailable

_RESTART_SECONDS: Final = 2
_STOP_SECONDS: Final = 1
"""Time for current steps to end at shutdown. The job of a step that is cut off is resumed by
another process, at the latest after the lease."""

_log = logging.getLogger(__name__)


class BackgroundTask:
    """A background task that runs until it is stopped."""

    name: str

    def __init__(self) -> None:
        self._woken = asyncio.Event()
        self._is_stopping = False

    async def run(self) -> None:
        """Run until `stop` is called; if cancelled, abandon the current work."""
        raise NotImplementedError

    def wake(self) -> None:
        """Look for work now instead of at the next interval."""
        self._woken.set()

    def stop(self) -> None:
        """Begin no more work; `run` returns when the current work has ended."""
        self._is_stopping = True
        self._woken.set()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        self._woken.clear()


@asynccontextmanager
async def running(*workers: BackgroundTask) -> AsyncIterator[None]:
    """Run workers during the block; then wait up to `_STOP_SECONDS` for their current steps.

    All are stopped at the same time: at shutdown, a process has little more than these seconds
    (`serving.processes.server`).
    """
    tasks = [asyncio.create_task(_keep_running(each), name=each.name) for each in workers]
    try:
        yield
    finally:
        for each in workers:
            each.stop()
        if tasks:
            await asyncio.wait(tasks, timeout=_STOP_SECONDS)
            for task in tasks:
                task.cancel()  # some may wait for a thread, which nothing stops
            await asyncio.wait(tasks, timeout=_STOP_SECONDS)


async def _keep_running(worker: BackgroundTask) -> None:
    """Run the worker until it is stopped; restart it after a failure."""
    while True:
        try:
            await worker.run()
        except PlatformError as error:
            _log.warning("the %s restarts after an error: %s", worker.name, error)
            await asyncio.sleep(_RESTART_SECONDS)
        except Exception:  # noqa: BLE001 - else no job would run until the process restarts
            _log.exception("the %s failed and restarts", worker.name)
            await asyncio.sleep(_RESTART_SECONDS)
        else:
            return


@asynccontextmanager
async def repeated(seconds: float, action: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Call `action` every `seconds` during the block; log its failures and continue."""
    task = asyncio.create_task(_repeat(seconds, action))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _repeat(seconds: float, action: Callable[[], Awaitable[object]]) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            await action()
        except PlatformError as error:
            _log.warning("a background chore failed: %s", error)
        except Exception:  # noqa: BLE001 - it is called again
            _log.exception("a background chore failed")


@asynccontextmanager
async def recording(
    seconds: float, write: Callable[[], Awaitable[object]], noted: str
) -> AsyncIterator[None]:
    """Call `write` every `seconds` during the block, and once after it.

    `write` saves data that was collected in memory; `noted` names the data, for the log.
    """
    try:
        async with repeated(seconds, write):
            yield
    finally:
        await record_before_stop(write, noted)


async def record_before_stop(write: Callable[[], Awaitable[object]], noted: str) -> None:
    """Call `write`, which saves data collected in memory; log a `PlatformError`, do not raise it.

    `noted` names the data, for the log.
    """
    try:
        await write()
    except PlatformError as error:
        _log.warning("this process stops without recording %s: %s", noted, error)


async def run_under_lease(
    what: str,
    work: Coroutine[Any, Any, object],
    renew: Callable[[], Awaitable[bool]],
    every_seconds: float,
) -> None:
    """Run `work`, and call `renew` every `every_seconds`; cancel the work if `renew` returns False.

    `what` names the work in the log. Exceptions of the work are logged, not raised.
    """
    working = asyncio.create_task(work)
    renewing = asyncio.create_task(_renew_until_lost(what, renew, every_seconds))
    try:
        await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        working.cancel()
        renewing.cancel()
        ended = await asyncio.gather(working, renewing, return_exceptions=True)
    for error in ended:
        if isinstance(error, Exception):
            _log.error("%s failed", what, exc_info=error)


async def _renew_until_lost(
    what: str, renew: Callable[[], Awaitable[bool]], every_seconds: float
) -> None:
    while True:
        await asyncio.sleep(every_seconds)
        try:
            if not await renew():
                return
        except Unavailable as error:
            _log.warning("the lease of %s cannot be renewed: %s", what, error)

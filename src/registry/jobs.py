"""What runs the jobs and the schedule of all families.

Every process that serves runs one worker and one scheduler; they share one queue and one schedule
(`cloudcore.jobs`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from cloudcore.errors import PlatformError
from cloudcore.jobs.schedule import Scheduler
from cloudcore.jobs.worker import JobWorker

_RESTART_SECONDS: Final = 2
_STOP_SECONDS: Final = 1
"""How long a step may go on at the end; what it was doing is resumed elsewhere by its lease."""

_log = logging.getLogger(__name__)


@asynccontextmanager
async def running(worker: JobWorker | Scheduler) -> AsyncIterator[None]:
    """Run the worker meanwhile; at the end let the steps under way finish, but not for long."""
    task = asyncio.create_task(_keep_running(worker), name=_name(worker))
    try:
        yield
    finally:
        worker.stop()
        with suppress(TimeoutError):
            await asyncio.wait_for(task, _STOP_SECONDS)


async def _keep_running(worker: JobWorker | Scheduler) -> None:
    """Run the worker until it is stopped, again after a failure."""
    while True:
        try:
            await worker.run()
        except PlatformError as error:
            _log.warning("the %s of the jobs begins again: %s", _name(worker), error)
            await asyncio.sleep(_RESTART_SECONDS)
        except Exception:  # noqa: BLE001 - else no job would run until the next start
            _log.exception("the %s of the jobs failed, and begins again", _name(worker))
            await asyncio.sleep(_RESTART_SECONDS)
        else:
            return


def _name(worker: JobWorker | Scheduler) -> str:
    return type(worker).__name__.lower()

"""Work under a lease: renew the lease meanwhile, cancel the work when it is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from cloudcore.errors import Unavailable

_log = logging.getLogger(__name__)


async def hold(
    what: str,
    work: Coroutine[Any, Any, object],
    renew: Callable[[], Awaitable[bool]],
    every_seconds: float,
) -> None:
    """Run `work` and call `renew` every `every_seconds`; cancel the work when that returns False.

    `what` names the work in the log. Exceptions of the work are not raised here.
    """
    working = asyncio.create_task(work)
    renewing = asyncio.create_task(_keep(what, renew, every_seconds))
    try:
        await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        working.cancel()
        renewing.cancel()
        ended = await asyncio.gather(working, renewing, return_exceptions=True)
    for error in ended:
        if isinstance(error, Exception):
            _log.error("%s failed", what, exc_info=error)


async def _keep(what: str, renew: Callable[[], Awaitable[bool]], every_seconds: float) -> None:
    """Renew a lease until it is lost."""
    while True:
        await asyncio.sleep(every_seconds)
        try:
            if not await renew():
                return
        except Unavailable as error:
            _log.warning("the lease of %s cannot be renewed: %s", what, error)

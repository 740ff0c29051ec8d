"""``/healthz``: the process is alive. ``/readyz``: it can serve requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from litestar import MediaType, Response, Router, get

from cloudcore.errors import PlatformError
from cloudcore.web.app import Needs, family_routes

PATIENCE_SECONDS: Final = 0.7
"""Seconds in which a part must answer its probe: load balancers give up after one."""
OK: Final = "ok"
LEAVING: Final = "it is about to stop: send requests elsewhere"
_FAILED: Final = "it failed"
_ROUTE_OPTIONS: Final = {"action": None, "public": True}

Probe = Callable[[], Awaitable[None]]
"""Returns if its part can serve; raises `Unavailable` if not."""

_log = logging.getLogger(__name__)


@get("/healthz", status_code=200, media_type="text/plain", opt=_ROUTE_OPTIONS)
async def report_alive() -> str:
    """Return ok without a check of any other part."""
    return "ok\n"


class Readiness:
    """The state of the parts that requests need.

    A part has one probe at a time, whose result concurrent requests share: a part that hangs
    costs one call, however many requests come. The log has each change of an answer.
    """

    def __init__(self, probes: Mapping[str, Probe], is_leaving: Callable[[], bool] = bool) -> None:
        """Store the probe of each part, and a function that returns True shortly before a stop."""
        self._probes = probes
        self._is_leaving = is_leaving
        self._probing: dict[str, asyncio.Task[str]] = {}
        self._last = dict.fromkeys(probes, OK)

    async def report(self) -> dict[str, str]:
        """Return `OK`, or an error message, for each part; after `PATIENCE_SECONDS` at the latest.

        A server that is about to stop reports that as an additional part.
        """
        tasks = {part: self._ask(part, probe) for part, probe in self._probes.items()}
        await asyncio.wait(tasks.values(), timeout=PATIENCE_SECONDS)
        found = {
            part: task.result() if task.done() else f"no answer within {PATIENCE_SECONDS:g} s"
            for part, task in tasks.items()
        }
        for part, answer in found.items():
            if answer != self._last[part]:
                _log.log(
                    logging.INFO if answer == OK else logging.WARNING,
                    "/readyz: %s: %s",
                    part,
                    answer,
                )
        self._last = found
        return ({"server": LEAVING} if self._is_leaving() else {}) | found

    def _ask(self, part: str, probe: Probe) -> asyncio.Task[str]:
        task = self._probing.get(part)
        if task is None or task.done():
            task = self._probing[part] = asyncio.create_task(self._answer(part, probe))
        return task

    async def _answer(self, part: str, probe: Probe) -> str:
        try:
            await probe()
        except PlatformError as error:  # its message names no host, user or file
            return error.message
        except Exception:  # noqa: BLE001 - clients are unauthenticated: they get no details
            if self._last[part] != _FAILED:
                _log.exception("the probe of %s failed", part)
            return _FAILED
        return OK


@get("/readyz", status_code=200, media_type=MediaType.JSON, opt=_ROUTE_OPTIONS)
async def report_ready(needs: Needs[Readiness]) -> Response[dict[str, str]]:
    """Return the state of each part: `ok`, or what is wrong; 503 if it is not `ok` for all.

    A full disk stops writes, not reads.
    """
    parts = await needs.report()
    is_ready = all(answer == OK for answer in parts.values())
    return Response(parts, status_code=200 if is_ready else 503, media_type=MediaType.JSON)


HEALTH: Final = "health"
"""The name under which an application provides a `Readiness`."""


def health_routes() -> Router:
    """Return the router of ``/healthz`` and ``/readyz``."""
    return family_routes(HEALTH, (report_alive, report_ready), has_platform=False)

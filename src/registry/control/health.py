"""Health: is the process alive, and can it serve (api F, "Operations")."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from litestar import Response, get
from litestar.handlers import HTTPRouteHandler

_FACTS: Final = {"action": None, "public": True}

Probe = Callable[[], Awaitable[None]]
"""Returns when the part it asks about can serve; raises otherwise."""


@get("/healthz", status_code=200, media_type="text/plain", opt=_FACTS)
async def report_alive() -> str:
    """Answer as long as the process can answer at all."""
    return "ok\n"


def readiness(probe: Probe) -> HTTPRouteHandler:
    """Return the handler of ``/readyz``: 200 when database and store can serve, else 503."""

    @get("/readyz", status_code=200, media_type="text/plain", opt=_FACTS)
    async def report_ready() -> Response[str]:
        """Ask the parts a request needs; `probe` raises `Unavailable` when one is missing."""
        await probe()
        return Response("ready\n", media_type="text/plain")

    return report_ready

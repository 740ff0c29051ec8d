"""The planes of the registry, and the application that dispatches to them."""

from __future__ import annotations

from typing import Final

from cloudcore.serving.dispatch import Application, Dispatcher, Hook
from cloudcore.serving.planes import Plane, Planes
from cloudcore.web import envelope
from registry.distribution import errors

_LOGGED: Final = frozenset((b"n", b"last", b"digest", b"mount", b"from", b"tag"))

PLANES: Final = Planes(
    Plane(
        "data",
        errors.server_refusal,
        b"docker-distribution-api-version: registry/2.0\r\n",
        prefixes=(b"/v2",),
        logged_parameters=_LOGGED,
    ),
    Plane("control", envelope.server_refusal, logged_parameters=_LOGGED),
)


def dispatcher(
    data: Application,
    control: Application,
    *,
    startup: Hook | None = None,
    shutdown: Hook | None = None,
) -> Dispatcher:
    """Return the application that dispatches requests to those of the two planes."""
    return Dispatcher(PLANES, (data, control), startup=startup, shutdown=shutdown)

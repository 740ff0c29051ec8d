"""The planes of the registry, and the application that dispatches to them.

The S3 endpoint is a plane only of installs whose settings name a port or a host for it.
"""

from __future__ import annotations

from typing import Final

from cloudcore.serving.dispatch import Application, Dispatcher, Hook
from cloudcore.serving.planes import Plane, Planes
from cloudcore.web import envelope
from registry.distribution import errors
from registry.settings import Settings

_LOGGED_S3: Final = frozenset(
    (b"prefix", b"delimiter", b"list-type", b"max-keys", b"uploads", b"partNumber", b"tagging")
)
_LOGGED: Final = frozenset((b"n", b"last", b"digest", b"mount", b"from", b"tag"))

_REGISTRY: Final = (
    Plane(
        "data",
        errors.server_refusal,
        b"docker-distribution-api-version: registry/2.0\r\n",
        prefixes=(b"/v2",),
        logged_parameters=_LOGGED,
    ),
    Plane("control", envelope.server_refusal, logged_parameters=_LOGGED),
)


def _s3_refusal(status: int, message: str, request_id: str) -> bytes:
    # Most installs have no S3 endpoint, and load nothing of it.
    from cloudcore.storage.s3.answers import server_refusal  # noqa: PLC0415

    return server_refusal(status, message, request_id)


_OBJECTS: Final = Plane(
    "objects",
    _s3_refusal,
    refusal_type=b"application/xml",
    logged_parameters=_LOGGED_S3,
)


def planes_of(settings: Settings) -> Planes:
    """Return the planes of an install."""
    objects: list[Plane] = []
    if settings.s3_port:
        objects.append(_OBJECTS._replace(port=settings.s3_port))
    if settings.s3_host:
        objects.append(_OBJECTS._replace(hosts=(f".{settings.s3_host}".encode(),)))
    return Planes(*objects, *_REGISTRY)


PLANES: Final = Planes(*_REGISTRY)
"""Those of an install without an S3 endpoint."""


def dispatcher(
    data: Application,
    control: Application,
    objects: Application | None = None,
    *,
    planes: Planes = PLANES,
    startup: Hook | None = None,
    shutdown: Hook | None = None,
) -> Dispatcher:
    """Return the application that dispatches requests to those of the planes."""
    named = {"data": data, "control": control, "objects": objects or control}
    applications = [named[plane.name] for plane in planes.planes]
    return Dispatcher(planes, applications, startup=startup, shutdown=shutdown)

"""The planes of the registry: the hosts and paths that each serves, and how requests reach them.

The S3 endpoint is a plane only if the settings name a port or a host for it. If families have hosts
of their own (the setting ``family_hosts``), each host name has planes of its own, which serve the
families at that name, the probes, the reference and the regions. Any other host, such as an address
that a balancer probes, has all planes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from cloudcore.serving.asgi import Receive, Scope, Send
from cloudcore.serving.dispatch import Application, Dispatcher, Hook
from cloudcore.serving.planes import Plane, Planes
from cloudcore.web import envelope
from registry.composition.families import FAMILIES
from registry.distribution import errors
from registry.settings.settings import Settings
from registry.settings.texts import CONSOLE, PULL, SettingsError, without_port

_LOGGED_S3: Final = frozenset(
    (b"prefix", b"delimiter", b"list-type", b"max-keys", b"uploads", b"partNumber", b"tagging")
)
_LOGGED: Final = frozenset((b"n", b"last", b"digest", b"mount", b"from", b"tag"))

_NOWHERE: Final = "/\0"
"""A path that no route has."""
_PAGES: Final = b"/console"
_OF_PROGRAMS: Final = (b"/v1", b"/v2", b"/.well-known")
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
    """Return the planes of an install.

    Raise `SettingsError` if `family_hosts` names a part that cannot have its own host.
    """
    objects: list[Plane] = []
    if settings.s3_port:
        objects.append(_OBJECTS._replace(port=settings.s3_port))
    if settings.s3_host:
        objects.append(_OBJECTS._replace(hosts=(f".{settings.s3_host}".encode(),)))
    return Planes(*objects, *_of_names(settings), *_REGISTRY)


def _of_names(settings: Settings) -> Iterator[Plane]:
    """Yield the planes of each host name; nothing unless families have their own host names."""
    for name, parts in parts_by_name(settings).items():
        data, control = (each._replace(hosts=(name.encode(),)) for each in _REGISTRY)
        nothing = control._replace(is_empty=True)
        if PULL in parts:
            yield data
        pages = (_PAGES,) if CONSOLE in parts else ()
        yield control._replace(prefixes=(*paths_of(parts), *pages))
        yield nothing._replace(prefixes=(*_OF_PROGRAMS, _PAGES))
        yield control  # At any name, an image reference leads a browser to the image's page.


PLANES: Final = Planes(*_REGISTRY)
"""The planes of an install without an S3 endpoint."""


def dispatcher(
    data: Application,
    control: Application,
    objects: Application | None = None,
    *,
    planes: Planes = PLANES,
    startup: Hook | None = None,
    shutdown: Hook | None = None,
) -> Dispatcher:
    """Return the application that dispatches each request to the application of its plane.

    If `objects` is None, requests for the S3 endpoint go to `control`.
    """
    named = {"data": data, "control": control, "objects": objects or control}
    applications = [
        _without_paths(control) if plane.is_empty else named[plane.name] for plane in planes.planes
    ]
    return Dispatcher(planes, applications, startup=startup, shutdown=shutdown)


def _without_paths(control: Application) -> Application:
    """Return an application that answers every request like `control` at an unknown path."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await control({**scope, "path": _NOWHERE, "raw_path": _NOWHERE.encode()}, receive, send)

    return answer


_PATHS: Final[Mapping[str, Sequence[str]]] = {
    each.host: each.paths for each in FAMILIES if each.host and each.paths
}
PARTS: Final = (PULL, CONSOLE, *_PATHS)
"""The parts of an install that may have a host of their own."""
_EVERYWHERE: Final = (
    "/healthz",
    "/readyz",
    "/v1/openapi.json",
    "/v1/reference",
    *(path for each in FAMILIES if each.host is None for path in each.paths),
)


def parts_by_name(settings: Settings) -> Mapping[str, frozenset[str]]:
    """Map each host name, without its port, to the parts it serves; empty if one name serves all.

    Raise `SettingsError` if `family_hosts` names a part that does not exist.
    """
    own = settings.hosts_by_part
    if not own:
        return {}
    if unknown := [part for part in own if part not in PARTS]:
        raise SettingsError(
            f"family_hosts: {unknown[0]!r} has no host of its own; before the = is one of"
            f" {', '.join(PARTS)}"
        )
    main = urlsplit(settings.public_url).netloc
    pairs = [(without_port(host), part) for part in PARTS for host in own.get(part, (main,))]
    names = dict.fromkeys((without_port(main), *(name for name, _ in pairs)))
    return {each: frozenset(part for name, part in pairs if name == each) for each in names}


def paths_of(parts: Iterable[str]) -> tuple[bytes, ...]:
    """Return the path prefixes that the control plane serves at a host with these `parts`."""
    own = (path for part in parts for path in _PATHS.get(part, ()))
    return tuple(path.encode() for path in (*_EVERYWHERE, *sorted(own)))

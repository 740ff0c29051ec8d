"""The ASGI application of the data plane: match the path, check names, authorize, call a handler.

`ROUTES` has the handler and the required right for each endpoint and method; any other method gets
405. Malformed names and digests are refused before authorization, since that reveals nothing about
the registry. Every other check comes after authorization.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple
from uuid import uuid4

from cloudcore.errors import MethodNotAllowed, OutOfMemory, PlatformError, QuotaExceeded
from cloudcore.serving.asgi import Receive, Scope, Send
from cloudcore.serving.counters import QUOTAS
from registry.distribution import blobs, lists, manifests, uploads
from registry.distribution.auth import CATALOG, DELETE, MOUNT, PROBE, PULL, PUSH, Access, Need
from registry.distribution.errors import head_warning, internal_error, render
from registry.distribution.kept_answers import kept_challenge, kept_greeting
from registry.distribution.request import DataPlaneRequest
from registry.distribution.response import Response, json_response, send_response
from registry.distribution.routing import Endpoint, Match, Mirrors, match_path
from registry.distribution.token import TokenEndpoint
from registry.errors import ExtensionUnknown, RepositoryMirrored
from registry.oci.digest import Digest
from registry.oci.reference import Name, parse_name
from registry.services.context import ServiceContext

_log = logging.getLogger(__name__)
_NO_NAME: Final = Name("", "")
_BY_DIGEST: Final = (Endpoint.BLOB, Endpoint.REFERRERS)
_PUSHING: Final = ("POST", "PUT", "PATCH")

Handler = Callable[[ServiceContext, DataPlaneRequest], Awaitable[Response]]


class Route(NamedTuple):
    """The handler of an endpoint and method, and the right that a request needs.

    If `need` is None, any valid credential is enough.
    """

    handler: Handler
    need: Need | None


async def ping(ctx: ServiceContext, request: DataPlaneRequest) -> Response:
    """end-1: answer 200; clients use it to check the API version and their credential."""
    return json_response(b"{}")._replace(keep=kept_greeting(ctx, request))


def _read_by(handler: Handler, need: Need | None) -> dict[str, Route]:
    return dict.fromkeys(("GET", "HEAD"), Route(handler, need))


ROUTES: Final[dict[Endpoint, dict[str, Route]]] = {
    Endpoint.BASE: _read_by(ping, None),
    Endpoint.CATALOG: _read_by(lists.get_catalog, CATALOG),
    Endpoint.TAGS: _read_by(lists.get_tags, PULL),
    Endpoint.BLOB: {
        "GET": Route(blobs.get_blob, PULL),
        "HEAD": Route(blobs.get_blob, PROBE),
        "DELETE": Route(blobs.delete_blob, DELETE),
    },
    Endpoint.UPLOADS: {"POST": Route(uploads.post_upload, MOUNT)},
    Endpoint.UPLOAD: {
        **_read_by(uploads.get_upload, PUSH),
        "PATCH": Route(uploads.patch_upload, PUSH),
        "PUT": Route(uploads.put_upload, PUSH),
        "DELETE": Route(uploads.delete_upload, PUSH),
    },
    Endpoint.MANIFEST: {
        **_read_by(manifests.get_manifest, PULL),
        "PUT": Route(manifests.put_manifest, PUSH),
        "DELETE": Route(manifests.delete_manifest, DELETE),
    },
    Endpoint.REFERRERS: _read_by(lists.get_referrers, PULL),
}


class DataPlane:
    """The ASGI application for everything under ``/v2``."""

    def __init__(
        self,
        ctx: ServiceContext,
        access: Access,
        token: TokenEndpoint | None = None,
        mirrors: Mirrors | None = None,
    ) -> None:
        """Serve `ctx`; without a `token` endpoint there is no sign-in, and its path gives 404."""
        self._mirrors = mirrors or Mirrors()
        self._ctx = ctx
        self._access = access
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; render every error as the distribution specification defines."""
        request_id = scope.get("state", {}).get("request_id") or str(uuid4())
        try:
            response = await self._answer_in_memory(scope, receive)
        except PlatformError as error:
            response = render(error)._replace(keep=kept_challenge(self._ctx, scope, error))
            if scope["method"] == "HEAD":
                response.headers.extend(head_warning(error))
            if response.status == 405 and not isinstance(error, MethodNotAllowed):
                response.headers.append(_other_methods(scope, error))
            if isinstance(error, QuotaExceeded):
                quota = error.params.get("quota", "")
                scope.setdefault("state", {})["event"] = f"{QUOTAS}.{quota}"
            if response.status >= 500:
                _log.warning("%s", error.message, extra={"request_id": request_id})
        except Exception:  # noqa: BLE001 - a bug is logged, and its details are not sent
            _log.exception("unexpected failure", extra={"request_id": request_id})
            response = internal_error()
        await send_response(scope, send, response, request_id.encode())

    async def _answer_in_memory(self, scope: Scope, receive: Receive) -> Response:
        try:
            return await self._answer(scope, receive)
        except MemoryError:  # such as for a large manifest
            _log.warning("no memory", exc_info=True)
            raise OutOfMemory from None

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        match = match_path(scope["raw_path"])
        mirror = self._mirrors.key(scope)
        if mirror is not None:
            scope.setdefault("state", {})["mirror"] = mirror  # for the challenge
            match = match._replace(name=self._mirrors.local(mirror, match.name))
        if match.endpoint is Endpoint.TOKEN:
            if self._token is None:
                raise ExtensionUnknown("there is no sign-in here")
            return await self._token.answer(scope, receive)
        routes = ROUTES[match.endpoint]
        route = routes.get(scope["method"])
        if route is None:
            allow = ", ".join(routes)
            raise MethodNotAllowed(f"this endpoint answers {allow}", allow=allow)
        name = _checked_name(match)
        grant = self._access.authorize(scope, name, route.need)
        request = DataPlaneRequest(scope, receive, name or _NO_NAME, match.argument, grant)
        return await route.handler(self._ctx, request)


def _other_methods(scope: Scope, error: PlatformError) -> tuple[bytes, bytes]:
    """Return the ``Allow`` header for a 405 that a handler raised for this one resource."""
    routes = ROUTES[match_path(scope["raw_path"]).endpoint]
    refused = _PUSHING if isinstance(error, RepositoryMirrored) else (scope["method"],)
    others = (method for method in routes if method not in refused)
    return (b"allow", ", ".join(others).encode())


def _checked_name(match: Match) -> Name | None:
    """Return the repository's name in a path, or None if the endpoint has no repository.

    Raise NameInvalid or DigestInvalid if the name or the digest in the path is malformed.
    """
    endpoint, text, argument = match
    if not text and endpoint in (Endpoint.BASE, Endpoint.CATALOG):
        return None
    name = parse_name(text)
    if ":" in argument if endpoint is Endpoint.MANIFEST else endpoint in _BY_DIGEST:
        Digest.parse(argument)
    return name

"""The application of the control plane: routes, guard, request bodies and errors.

The steps of a request: create its `RequestState`; find the route; check it by the `Guard`; read its
body and claim its ``Idempotency-Key``; decode the body; run the handler; send the response through
the `RequestState`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar, cast
from urllib.parse import quote

from litestar import Litestar, Request, Response, Router
from litestar.di import NamedDependency, Provide
from litestar.enums import ScopeType
from litestar.exceptions import HTTPException, InternalServerException
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.params import SkipValidation
from litestar.types import ControllerRouterHandler, HTTPScope, Receive, Scope, Send

from cloudcore import errors
from cloudcore.db.base import ConstraintViolated
from cloudcore.iam.vocabulary import Vocabulary
from cloudcore.serving.asgi import Receive as ServerReceive
from cloudcore.serving.asgi import header_values
from cloudcore.serving.bodies.budget import BODIES
from cloudcore.serving.counters import QUOTAS
from cloudcore.serving.dispatch import new_request_id
from cloudcore.threads import DOCUMENTS
from cloudcore.web import idempotency, route_spec
from cloudcore.web.context import Platform, Reply, RequestContext, refusal
from cloudcore.web.envelope import ENVELOPE, ErrorShape
from cloudcore.web.guard import Guard
from cloudcore.web.path_tails import PLACEHOLDER, is_ambiguous
from cloudcore.web.reference_pages import ReferencePages
from cloudcore.web.request_state import RequestState, request_state_of
from cloudcore.web.route_spec import RouteError, RouteSpec, allowed
from cloudcore.web.streams import RequestStream
from cloudcore.web.strict_json import decode

MAX_BODY_BYTES: Final = 1 << 20
INLINE_BYTES: Final = 64 * 1024
"""The largest body that is decoded on the event loop. The worst one of `MAX_BODY_BYTES` takes
20 ms; a thread holds the interpreter's lock for at most a third of that at a time."""

_JSON: Final = re.compile(rb'application/json(?:[ \t]*;[ \t]*charset="?utf-8"?)?', re.IGNORECASE)

_EMPTY_OBJECT: Final = re.compile(rb"\s*\{\s*\}\s*")
"""A POST that takes no body accepts an empty object, because client libraries send one."""
_LONGEST_EMPTY: Final = 64

_PLANE: Final = "control_plane"

_log = logging.getLogger(__name__)

T = TypeVar("T")
Context = NamedDependency[RequestContext]
"""Type of the parameter ``ctx`` of a handler."""
Needs = NamedDependency[SkipValidation[T]]
"""Type of the parameter ``needs`` of a handler in `family_routes`."""


def family_routes(
    name: str, handlers: Sequence[HTTPRouteHandler], *, has_platform: bool = True
) -> Router:
    """Return the router of the family `name`, whose handlers may have a parameter ``needs``.

    The parameter gets ``needs[name]`` of the `ControlPlane`. `has_platform` is False if that may
    have no platform; the handlers then have no ``ctx``. A path belongs to one family.
    """

    def alone(scope: Scope) -> Any:  # noqa: ANN401 - of any family
        return _plane_of(scope).needs[name]

    def after_context(scope: Scope, ctx: Context) -> Any:  # noqa: ANN401
        # The framework makes two dependencies at once in a task group: 200 us more than in turn.
        del ctx
        return alone(scope)

    provide = Provide(after_context if has_platform else alone, sync_to_thread=False)
    return route_spec.router_of(handlers, dependencies={"needs": provide}, opt={"family": name})


class Routes:
    """The routes of an application, and all that is derived from their declarations.

    Making them takes some 240 ms, so a process does it once: they contain nothing specific to an
    install. The dependencies of handlers come with the request, from the `ControlPlane` that
    received it.
    """

    def __init__(
        self,
        handlers: Sequence[ControllerRouterHandler],
        error_shapes: Mapping[str, ErrorShape] | None = None,
    ) -> None:
        """Make the routes of `handlers`.

        Errors below a path prefix in `error_shapes` have that shape instead of the envelope.

        Raise `RouteError` if a route's declaration is incomplete (see `cloudcore.web.route_spec`).
        """
        reference = ReferencePages()
        self._error_shapes = error_shapes or {}
        self.framework: Final = Litestar(
            route_handlers=[*handlers, *reference.handlers()],
            openapi_config=None,
            logging_config=None,
            exception_handlers={Exception: _answer_error},
            before_request=_before_handler,
            dependencies={
                "ctx": Provide(_context, sync_to_thread=False),
                "stream": Provide(_stream, sync_to_thread=False),
            },
            request_class=_CheckedRequest,
            response_class=_Response,
            request_max_body_size=MAX_BODY_BYTES,
        )
        self.all: Final = list(route_spec.routes_of(self.framework))
        for route in self.all:
            if route.handler.resolve_before_request() != _before_handler:
                raise RouteError(
                    f"{route.spec.operation}: its own before_request would replace the guard"
                )
        self.specs: Final[Mapping[BaseRouteHandler, RouteSpec]] = {
            route.handler: route.spec for route in self.all
        }
        self.allow: Final = {
            path.path_format: allowed(path.methods) for path in self.framework.routes
        }
        self.tails: Final = route_spec.tails_of(self.all)
        self.families: Final = {
            route.spec.family: route.spec.operation for route in self.all if route.spec.family
        }
        """The families that have routes, each with one of its operations."""
        self.with_platform: Final = [r.spec.operation for r in self.all if not r.spec.public]
        """Operations that authenticate their callers."""
        self.documented_actions: Final = tuple(route_spec.documented_actions(self.all))
        reference.describe(self.all, self._error_shapes)

    def shape_of(self, path: str) -> ErrorShape:
        """Return the shape of errors at a path."""
        shapes = self._error_shapes.items()
        return next((shape for prefix, shape in shapes if path.startswith(prefix)), ENVELOPE)


class ControlPlane:
    """The ASGI application of the control plane, wrapped around the framework's.

    Every response passes through it.
    """

    def __init__(
        self,
        routes: Routes,
        platform: Platform | None = None,
        *,
        needs: Mapping[str, object] | None = None,
        absent: str = "there is nothing at this path",
        vocabulary: Vocabulary | None = None,
    ) -> None:
        """Serve `routes` for one install.

        Without a `platform`, all routes must be public. `needs` maps each family's name to its
        dependencies. `absent` is the message of a 404 for an unknown path. `vocabulary` has the
        actions and resources that policies can name.

        Raises:
            RouteError: a route is not public, but there is no `platform` to check its callers; or
                `needs` lacks the family of a route.

        """
        self._routes: Final = routes
        self.routes: Final = routes.all
        self.needs: Final = needs or {}
        self.absent: Final = absent
        self.shape_of: Final = routes.shape_of
        vocabulary = vocabulary or Vocabulary()
        vocabulary.describe(routes.documented_actions)
        self.guard: Final = Guard(platform, routes.specs, routes.allow, vocabulary)
        if platform is None and routes.with_platform:
            raise RouteError(
                f"{routes.with_platform[0]}: without a platform, no caller can be authenticated"
            )
        for route in routes.all:
            spec = route.spec
            if spec.takes_body and spec.action in vocabulary.shared_actions and not spec.admits:
                raise RouteError(f"{spec.operation}: opt names nothing that admits callers")
        for family, operation in routes.families.items():
            if family not in self.needs:
                raise RouteError(
                    f"{operation}: the dependencies of the family {family} are missing"
                )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or run the framework's lifespan."""
        if scope["type"] == ScopeType.HTTP:
            await self._answer(scope, receive, send)
        else:
            await self._routes.framework(scope, receive, send)

    async def _answer(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        request_id = scope.setdefault("state", {}).setdefault("request_id", new_request_id())
        for value in header_values(scope, b"x-request-id"):
            _log.info("request %s is called %r by the client", request_id, value.decode("latin-1"))
        state = RequestState(scope, receive, send, request_id)
        scope["state"][_PLANE] = self
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        path = _raw_path(scope)
        if tailed := self._routes.tails.find(path):
            state.tail = tailed.tail
            scope = {**scope, "path": tailed.head + PLACEHOLDER}
        elif is_ambiguous(path):
            scope = {**scope, "path": "/\0"}
        with BODIES.hold() as hold:
            metered = hold.metered(cast("ServerReceive", receive))
            await self._routes.framework(scope, cast("Receive", metered), state.send)


def _plane_of(scope: Scope) -> ControlPlane:
    plane: ControlPlane = scope["state"][_PLANE]
    return plane


async def _before_handler(request: Request[Any, Any, Any]) -> Reply[Any] | None:
    """Admit a request; return its recorded reply, or None to run the handler."""
    await _plane_of(request.scope).guard.admit(request)
    async with _refusing_first(request.scope):
        return await _read_request(request)


@asynccontextmanager
async def _refusing_first(scope: Scope) -> AsyncIterator[None]:
    """Report errors in a body only to a caller whom the route admits.

    If the caller's own policies alone decide, the guard has already refused all others.
    """
    try:
        yield
    except (errors.InvalidInput, errors.UnsupportedMediaType):
        state = request_state_of(scope)
        if state.spec is not None and state.spec.admits is not None:
            await state.spec.admits(_context(scope), scope["path_params"])
        raise


def _answer_error(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    state, plane = request_state_of(request.scope), _plane_of(request.scope)
    known = _platform_error(error, state, plane.absent)
    if known is None:
        _log.error("unexpected failure", exc_info=error, extra={"request_id": state.request_id})
        known = errors.PlatformError("")
    if isinstance(known, errors.QuotaExceeded):
        request.scope["state"]["event"] = f"{QUOTAS}.{known.params.get('quota', '')}"
    shape = plane.shape_of(request.scope["path"])
    status, body = shape.render(known, state.request_id)
    return Response(
        body,
        status_code=status,
        media_type="application/json",
        headers={**shape.headers, **_error_headers(known, state)},
    )


def _platform_error(
    error: Exception, state: RequestState, absent: str
) -> errors.PlatformError | None:
    """Convert an exception to a platform error, or return None if it is a bug."""
    if isinstance(error, errors.NotFound) and state.hides_absence:
        assert state.spec is not None
        assert state.spec.action is not None
        assert state.context is not None
        return refusal(state.spec.action, caller=state.context.caller)
    if isinstance(error, errors.PlatformError):
        return error
    if isinstance(error, MemoryError):
        _log.warning("no memory", exc_info=error, extra={"request_id": state.request_id})
        return errors.OutOfMemory()
    if isinstance(error, ConstraintViolated):
        # Changes check before they write; a concurrent change came in between.
        _log.warning(
            "a constraint refused a change: %s", error, extra={"request_id": state.request_id}
        )
        return errors.Conflict("another change was made at the same moment; repeat the request")
    if not isinstance(error, HTTPException) or error.status_code >= 500:
        return None
    match error.status_code:
        case 404:
            return errors.NotFound(absent)
        case 405:
            allow = allowed((error.headers or {}).get("allow", "").split(", "))
            return errors.MethodNotAllowed("the path does not take this method", allow=allow)
        case 413:
            return errors.PayloadTooLarge("the body is too large")
        case _:
            return errors.InvalidInput("the request cannot be read")


def _error_headers(error: errors.PlatformError, state: RequestState) -> dict[str, str]:
    """Return the headers of an error response, such as ``Retry-After`` (401: RFC 6750 §3)."""
    match error:
        case errors.Unauthenticated() if state.bearer_came:
            return {"WWW-Authenticate": 'Bearer error="invalid_token"'}
        case errors.Unauthenticated():
            return {"WWW-Authenticate": "Bearer"}
        case errors.MethodNotAllowed():
            return {"Allow": error.allow}
        case errors.RangeNotSatisfiable():
            return {"Content-Range": f"bytes */{error.size}"}
        case errors.Unavailable() | errors.RateLimited() | idempotency.InProgress():
            return {"Retry-After": str(error.retry_after)}
        case _:
            return {}


async def _read_request(request: Request[Any, Any, Any]) -> Reply[Any] | None:
    """Read the body and claim the ``Idempotency-Key``; return the key's recorded reply, or None."""
    state = request_state_of(request.scope)
    spec, context = state.spec, state.context
    if spec is None:
        return None
    if not spec.takes_body and not await _is_empty(request, spec):
        raise errors.InvalidInput(
            "this operation takes no body: send the request without one",
            field="body",
            reason="not_allowed",
        )
    if context is None:
        return None
    if spec.body is not None:
        _check_content_type(request.scope, await request.body())
    if spec.check_body is not None:
        spec.check_body(await request.body())
    if spec.idempotent:
        reply = await _claim(request, context, spec)
        if reply is not None:
            return reply
    if spec.is_body_required and not await request.body():
        raise errors.InvalidInput("the body is missing", field="body", reason="missing")
    return None


async def _is_empty(request: Request[Any, Any, Any], spec: RouteSpec) -> bool:
    """Return True if a request has no body or, for a POST, an empty object.

    This reads little more than `_LONGEST_EMPTY` bytes.
    """
    headers = dict(request.scope["headers"])
    has_none = not headers.get(b"content-length", b"").strip(b"0")
    if has_none and b"transfer-encoding" not in headers:
        return True
    found, has_more = b"", True
    while has_more and len(found) <= _LONGEST_EMPTY:
        message = await request.receive()
        if message["type"] != "http.request":
            raise errors.InvalidInput("the body did not arrive whole")
        found += message["body"]
        has_more = message.get("more_body", False)
    if not found:
        return True
    is_json = _JSON.fullmatch(headers.get(b"content-type", b"")) is not None
    is_object = not has_more and _EMPTY_OBJECT.fullmatch(found) is not None
    return spec.method == "POST" and is_json and is_object


async def _claim(
    request: Request[Any, Any, Any], context: RequestContext, spec: RouteSpec
) -> Reply[Any] | None:
    scope = request.scope
    key = idempotency.parse_key(header_values(scope, b"idempotency-key"))
    if key is None:
        return None
    assert context.caller is not None
    body = await request.body() if spec.takes_body else b""
    claim = idempotency.Claim(
        idempotency.KeyScope(context.caller.id, spec.operation, key),
        idempotency.fingerprint(_raw_path(scope), scope["query_string"], body),
        context.new_id(),
    )
    # Relaxed: if a power failure loses the record, it also loses all later changes.
    sealed = await context.database.write_relaxed(idempotency.begin, claim, context.clock())
    if sealed is None:
        context.claim = claim
        return None
    outcome = idempotency.RecordedOutcome.open(sealed, context.keyring, claim.scope)
    for action, resource in outcome.authorized:
        policy = await spec.resource_policy(context, resource) if spec.resource_policy else None
        context.authorize(resource, action=action, resource_policy=policy)
    context.is_committed = True
    return Reply(
        outcome.status, outcome.body, outcome.location, outcome.content_type, is_replayed=True
    )


def _raw_path(scope: Scope) -> bytes:
    """Return the path as it was sent, or encoded again if the server does not supply that."""
    return scope.get("raw_path") or quote(scope["path"]).encode()


def _check_content_type(scope: Scope, body: bytes) -> None:
    if not body:
        return
    if header_values(scope, b"content-encoding"):
        raise errors.UnsupportedMediaType("send the body as it is, without Content-Encoding")
    types = header_values(scope, b"content-type")
    if len(types) != 1 or not _JSON.fullmatch(types[0]):
        raise errors.UnsupportedMediaType("send the body with Content-Type: application/json")


def _context(scope: Scope) -> RequestContext:
    """Return the context that the guard has created; handlers get it as a dependency."""
    context = request_state_of(scope).context
    if context is None:
        raise RouteError("there is no platform, so there is no context")
    return context


def _stream(scope: Scope) -> RequestStream:
    """Return the unread body, for a handler with ``takes_stream``."""
    state = request_state_of(scope)
    assert state.spec is not None
    limit = state.spec.max_stream_bytes
    return RequestStream(scope, state.receive, _context(scope), limit)


class _CheckedRequest(Request[Any, Any, Any]):
    """A request whose body is read within the limits, and parsed strictly."""

    async def body(self) -> bytes:
        """Return the whole body; raise `InvalidInput` if it did not arrive completely."""
        try:
            return await super().body()
        except InternalServerException:
            raise errors.InvalidInput("the body did not arrive whole") from None

    async def json(self) -> Any:  # noqa: ANN401 - the type the handler asks for
        """Return the body, decoded as the type of the handler's parameter."""
        state = request_state_of(self.scope)
        spec = state.spec
        assert spec is not None
        whose = "" if state.context is None else state.context.account_or_person
        body = await self.body()
        async with _refusing_first(self.scope):
            if len(body) <= INLINE_BYTES:
                return decode(body, spec.body)
            return await DOCUMENTS.run(whose, decode, body, spec.body)


class _Response(Response[Any]):
    """The response for a handler's result: a `Reply` unchanged, anything else encoded."""

    def __init__(self, content: Any, **options: Any) -> None:  # noqa: ANN401 - the framework's
        if isinstance(content, Reply):
            options["status_code"] = content.status
            options["media_type"] = content.content_type
            headers = {"Location": content.location} if content.location is not None else {}
            if content.is_replayed:
                headers["Idempotency-Replayed"] = "true"
            options["headers"] = headers
            content = content.body
        super().__init__(content, **options)

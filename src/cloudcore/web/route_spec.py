"""Declarations of routes: what a handler's `opt` may contain, and its check at startup."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from http import HTTPStatus
from inspect import cleandoc
from typing import Any, Final

import msgspec
from litestar import Litestar, Router
from litestar import route as plain_route
from litestar.enums import HttpMethod, RequestEncodingType
from litestar.handlers import HTTPRouteHandler
from litestar.params import BodyKwarg
from litestar.routes import HTTPRoute

from cloudcore.iam.policy import Policy
from cloudcore.iam.vocabulary import ActionOperation
from cloudcore.web.context import ChangeCheck, Reply, RequestContext
from cloudcore.web.path_tails import Tails, collision

_ACTION: Final = re.compile(r"[a-z0-9-]+:[A-Z][A-Za-z0-9]*")
_OPTIONAL: Final[dict[str, Any]] = {
    **dict.fromkeys(("resource_policy", "admits", "change_check", "check_body"), Callable),
    **dict.fromkeys(("idempotent", "public", "rate_limited", "silent_limit"), bool),
    **dict.fromkeys(("entity_tag", "conditional", "takes_stream"), bool),
    **dict.fromkeys(("query", "form"), type),
    **dict.fromkeys(("statuses", "pages", "media_types"), tuple),
    **dict.fromkeys(("malformed_id", "max_stream_bytes"), int),
    **dict.fromkeys(("tail", "family"), str),
}
ResourcePolicy = Callable[[RequestContext, str], Awaitable[Policy | None]]
"""Given the CRN of a resource, returns its policy, or None."""
Admit = Callable[[RequestContext, Mapping[str, str]], Awaitable[object]]
"""Given the path's parameters, raises `AccessDenied` or `NotFound` if the caller is refused."""
PrepareCheck = Callable[[RequestContext], ChangeCheck | None]
"""Called when the caller may do the action somewhere; returns the check of its change, or None."""
CheckBody = Callable[[bytes], object]
"""Raises `InvalidInput` for a body that must not be stored, not even its hash."""
_INJECTED: Final = frozenset({"ctx", "data", "needs", "request", "return", "stream"})


class RouteError(Exception):
    """A route's declaration is incomplete or contradictory: a bug, found at startup."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSpec:
    """The checked declaration of one route."""

    operation: str
    """Method and route template: ``POST /v1/things/{thing_id}/parts``."""
    action: str | None
    """The action that the caller must be allowed to do; None if no permission is needed."""
    idempotent: bool = False
    """True if the route takes an ``Idempotency-Key``: a repeated request gets the first answer."""
    resource_policy: ResourcePolicy | None = None
    admits: Admit | None = None
    """Called before a caller learns what is wrong with the body. A route with a body needs this if
    the policy of a resource may allow its action."""
    change_check: PrepareCheck | None = None
    check_body: CheckBody | None = None
    public: bool = False
    """True if no credential is needed."""
    rate_limited: bool = False
    """True if requests are counted by caller, or else by address; too many are answered 429."""
    silent_limit: bool = False
    """True if a 429 has no ``Retry-After``, since nobody knows when a retry would succeed."""
    query: type[msgspec.Struct] | None = None
    """The type of the query parameters."""
    form: type[msgspec.Struct] | None = None
    """The type of the body, if the body is a form; the handler reads it itself."""
    statuses: tuple[int, ...] = ()
    """Statuses of responses besides those that follow from the rest of the declaration. Like
    `conditional`, `pages`, `media_types` and `silent_limit`, they only describe the route in the
    OpenAPI document."""
    entity_tag: bool = False
    """True if a success has an ``ETag``, and may become a 304 by ``If-None-Match``; caches may
    store it."""
    conditional: bool = False
    """True if the route takes ``If-Match`` and ``If-None-Match``, and may answer 412."""
    pages: tuple[int, ...] = ()
    """Statuses whose responses are HTML pages."""
    media_types: tuple[str, ...] = ()
    """Media types of a success whose content has no described shape."""
    malformed_id: int = 404
    """The status for an id in the path that is no UUID: 404 or 400."""
    tail: str | None = None
    """The last parameter of the path, if it takes the rest of the path, including slashes."""
    takes_stream: bool = False
    """True if the handler reads the body itself, as its parameter ``stream``."""
    max_stream_bytes: int | None = None
    """Maximum bytes of a body that is read as ``stream``; None if the handler limits them."""
    family: str | None = None
    """The family whose dependencies the handler may take as ``needs``."""
    id_parameters: tuple[str, ...] = ()
    body: Any = None
    """The type of the JSON body, or None."""
    is_body_required: bool = False
    status: int = 200
    """The status of a success."""

    @property
    def takes_body(self) -> bool:
        """Return True if a request may have a non-empty body."""
        return self.body is not None or self.form is not None or self.takes_stream

    @property
    def may_be_stored(self) -> bool:
        """Return True if caches may store a success: it is public, or has an entity tag."""
        return self.public or self.entity_tag

    @property
    def method(self) -> str:
        """Return the HTTP method."""
        return self.operation.partition(" ")[0]

    @property
    def path(self) -> str:
        """Return the route template."""
        return self.operation.partition(" ")[2]


@dataclass(frozen=True, slots=True)
class KernelRoute:
    """One method of one path."""

    spec: RouteSpec
    handler: HTTPRouteHandler


def routes_of(app: Litestar) -> Iterator[KernelRoute]:
    """Yield the routes of an application, except those the framework adds for OPTIONS.

    Raise `RouteError` if a route's declaration is incomplete.
    """
    for path in app.routes:
        if not isinstance(path, HTTPRoute):
            raise RouteError(f"{path.path} does not speak plain HTTP")
        for handler in path.route_handlers:
            if handler.http_methods != {"OPTIONS"}:
                yield KernelRoute(_spec(path, handler), handler)


def documented_actions(routes: Sequence[KernelRoute]) -> Iterator[tuple[str, ActionOperation]]:
    """Yield the action and the operation (with summary) of each route that requires an action."""
    for route in routes:
        if route.spec.action is not None:
            summary = cleandoc(route.handler.fn.__doc__ or "").partition("\n")[0]
            yield route.spec.action, ActionOperation(route.spec.operation, summary)


def tails_of(routes: Sequence[KernelRoute]) -> Tails:
    """Return the tails of paths that the routes declare.

    Raise `RouteError` if a route with a tail shares paths with another route.
    """
    paths = {route.spec.path for route in routes}
    tailed = sorted({route.spec.path for route in routes if route.spec.tail is not None})
    for route in routes:
        spec = route.spec
        if spec.path in tailed and spec.tail is None:
            raise RouteError(f"{spec.operation}: another method of the path has a tail")
    for path in tailed:
        if other := collision(path, paths):
            raise RouteError(f"{path}: its tail and {other} share paths")
    return Tails(tailed)


def allowed(methods: Any) -> str:  # noqa: ANN401 - an iterable of names, however typed
    """Return the methods of a path for the header ``Allow``: HEAD with GET, without OPTIONS."""
    names = {str(method) for method in methods} - {"OPTIONS"}
    return ", ".join(sorted(names | {"HEAD"} if "GET" in names else names))


def _spec(path: HTTPRoute, handler: HTTPRouteHandler) -> RouteSpec:
    template = path.path_format
    if len(handler.http_methods) != 1:
        raise RouteError(f"{template}: a handler answers one method")
    operation = f"{next(iter(handler.http_methods))} {template}"
    try:
        _check_opt(handler.opt)
        spec = RouteSpec(
            operation=operation,
            id_parameters=tuple(name for name in path.path_parameters if name.endswith("_id")),
            status=handler.status_code,
            **_body(handler),
            **handler.opt,
        )
        _check_sense(spec, handler)
        _check_parameters(path, handler)
    except RouteError as error:
        raise RouteError(f"{operation}: {error}") from None
    return spec


def _check_opt(opt: dict[str, Any]) -> None:
    if "action" not in opt:
        raise RouteError("opt names no action; say None where none is needed")
    action = opt["action"]
    if action is not None and not _ACTION.fullmatch(action):
        raise RouteError(f"{action!r} is no action")
    for name, value in opt.items():
        if name != "action" and not isinstance(value, _OPTIONAL.get(name, ())):
            raise RouteError(f"opt has an unknown or wrong {name}")


def _check_sense(spec: RouteSpec, handler: HTTPRouteHandler) -> None:
    if spec.public and (spec.action or spec.idempotent):
        raise RouteError("a public route has neither an action nor an Idempotency-Key")
    if spec.change_check is not None and (spec.action is None or spec.method == "GET"):
        raise RouteError("opt's change_check needs an action and a change")
    makes = spec.method == "POST" and spec.status in (HTTPStatus.CREATED, HTTPStatus.ACCEPTED)
    if makes and not (spec.idempotent or spec.public):
        raise RouteError("a POST that creates or starts something takes an Idempotency-Key")
    returned = handler.parsed_fn_signature.return_type
    if spec.idempotent and not (returned.is_subclass_of(Reply) or returned.origin is Reply):
        raise RouteError("an idempotent handler returns the Reply of Context.commit")

    _check_stream(spec, "stream" in handler.parsed_fn_signature.parameters)
    if spec.tail is not None and not spec.path.endswith(f"/{{{spec.tail}}}"):
        raise RouteError(f"the tail {spec.tail} is not the last segment of the path")
    if spec.tail in spec.id_parameters:
        raise RouteError(f"the tail {spec.tail} is named like a UUID")


def _check_stream(spec: RouteSpec, has_parameter: bool) -> None:  # noqa: FBT001 - of one caller
    if spec.takes_stream != has_parameter:
        raise RouteError("opt's takes_stream and a parameter called stream need one another")
    if spec.takes_stream and (spec.body is not None or spec.form or spec.idempotent):
        raise RouteError("a route with a stream has no other body, and is not idempotent")
    if spec.max_stream_bytes is not None and not spec.takes_stream:
        raise RouteError("opt's max_stream_bytes needs a stream")


def _check_parameters(path: HTTPRoute, handler: HTTPRouteHandler) -> None:
    for name, definition in path.path_parameters.items():
        if definition.type is not str:
            raise RouteError(f"the path parameter {name} is read as text: {{{name}:str}}")
    known = _INJECTED | set(path.path_parameters)
    unknown = set(handler.parsed_fn_signature.parameters) - known
    if unknown:
        raise RouteError(f"opt's query declares query parameters, not {min(unknown)}")


def _body(handler: HTTPRouteHandler) -> dict[str, Any]:
    field = handler.parsed_data_field
    if field is None:
        return {}
    definition = field.kwarg_definition
    if not isinstance(definition, BodyKwarg) or definition.media_type != RequestEncodingType.JSON:
        raise RouteError("a body is a JSONBody; read any other from the request")
    return {
        "body": field.annotation,
        "is_body_required": not field.is_optional,
    }


def router_of(handlers: Sequence[HTTPRouteHandler], **options: Any) -> Router:  # noqa: ANN401
    """Return a router for `handlers`, with `options` for the framework.

    The handlers share one handler for OPTIONS, which is never reached, as the application refuses
    OPTIONS earlier; without it, the framework would make one for each path. A handler remembers its
    router, which the application copies; so the router gets copies of the handlers.
    """
    if not handlers:  # the framework would take no path for the root
        return Router("/", route_handlers=[], **options)
    paths = sorted({path for handler in handlers for path in handler.paths})
    answer = plain_route(paths, http_method=HttpMethod.OPTIONS, status_code=204)(_never_reached)
    return Router("/", route_handlers=[answer, *map(copy, handlers)], **options)


async def _never_reached() -> None:
    """Do nothing: the application refuses OPTIONS before this handler is reached."""

"""The routes of a resource's standard methods, with what the OpenAPI document says of them."""

# The framework reads annotations as they are at run time, so they are no strings here.

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import Any, TypeVar, cast

from litestar import delete, get, patch, post
from litestar.di import NamedDependency
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, JSONBody

from cloudcore.resource_names import with_article
from cloudcore.resources.methods import Methods
from cloudcore.resources.resource import Verb
from cloudcore.web.context import Reply, RequestContext
from cloudcore.wire import RequestBody, ResponseBody

H = TypeVar("H", bound=Callable[..., Any])


def standard_routes(of: Methods[Any]) -> tuple[HTTPRouteHandler, ...]:
    """Return the routes of the standard methods that a resource has."""
    made: Mapping[Verb, Callable[[Methods[Any]], HTTPRouteHandler]] = {
        "create": _create,
        "list": _list,
        "get": _get,
        "update": _update,
        "delete": _delete,
    }
    return tuple(made[verb](of) for verb in of.of.methods)


def answers_one(of: Methods[Any]) -> Callable[[H], H]:
    """Return a decorator of a custom method whose answer is one of a resource, as `of` shows it."""

    def decorated(handler: H) -> H:
        is_reply = "Reply" in str(handler.__annotations__["return"])
        handler.__annotations__["return"] = _reply(of) if is_reply else of.bodies.one
        return handler

    return decorated


def answers_page(of: Methods[Any]) -> Callable[[H], H]:
    """Return a decorator of a list that a family writes by hand, of what `of` shows."""

    def decorated(handler: H) -> H:
        handler.__annotations__["return"] = of.bodies.page
        return handler

    return decorated


def _create(of: Methods[Any]) -> HTTPRouteHandler:
    async def create(data: RequestBody, ctx: RequestContext) -> Reply[ResponseBody]:
        return await of.answer_create(ctx, data)

    noun, opt = with_article(of.of.noun), _opt(of, "create", 409, idempotent=True)
    _describe(
        create,
        of.of.one,
        "create",
        of.docs.get("create", f"Create {noun}. An account has at most {of.of.quota:,}."),
        {"data": _body(of.bodies.create), "return": _reply(of)},
    )
    return post(of.of.path, status_code=201, opt=opt)(create)


def _list(of: Methods[Any]) -> HTTPRouteHandler:
    async def list_(ctx: RequestContext) -> ResponseBody:
        return await of.answer_list(ctx)

    _describe(
        list_,
        of.of.many,
        "list_account",
        of.docs.get("list", f"List the account's {of.of.nouns}, oldest first."),
        {"return": of.bodies.page},
    )
    return get(of.of.path, opt=_opt(of, "list", query=of.bodies.query))(list_)


def _get(of: Methods[Any]) -> HTTPRouteHandler:
    async def show(ctx: RequestContext, **ids: str) -> ResponseBody:
        return await of.answer_get(ctx, *ids.values())

    doc = of.docs.get("get", f"Return {with_article(of.of.noun)}.")
    _describe(show, of.of.one, "get", doc, {"return": of.bodies.one}, has_id=True)
    return get(of.of.path_of_one, opt=_opt(of, "get"))(show)


def _update(of: Methods[Any]) -> HTTPRouteHandler:
    async def update(data: RequestBody, ctx: RequestContext, **ids: str) -> Reply[ResponseBody]:
        (found_id,) = ids.values()
        return await of.answer_update(ctx, found_id, data)

    types = {"data": _body(of.bodies.update), "return": _reply(of)}
    doc = of.docs.get("update", f"Change {with_article(of.of.noun)}.")
    _describe(update, of.of.one, "update", doc, types, has_id=True)
    return patch(of.of.path_of_one, opt=_opt(of, "update"))(update)


def _delete(of: Methods[Any]) -> HTTPRouteHandler:
    async def remove(ctx: RequestContext, **ids: str) -> None:
        await of.answer_delete(ctx, *ids.values())

    opt = _opt(of, "delete", *((409,) if of.is_referred_to else ()))
    doc = of.docs.get("delete", f"Delete {with_article(of.of.noun)}.")
    _describe(remove, of.of.one, "delete", doc, {"return": None}, has_id=True)
    return delete(of.of.path_of_one, status_code=204, opt=opt)(remove)


def _body(kind: Any) -> Any:  # noqa: ANN401 - a type
    return cast("Any", JSONBody)[kind]


def _reply(of: Methods[Any]) -> Any:  # noqa: ANN401 - a type
    return cast("Any", Reply)[of.bodies.one]


def _opt(of: Methods[Any], verb: Verb, *statuses: int, **more: object) -> dict[str, object]:
    """Return what a route declares; see `cloudcore.web.route_spec`."""
    found = (*statuses, *of.statuses.get(verb, ()))
    return {"action": of.of.action(verb), **more, **({"statuses": found} if found else {})}


def _describe(
    handler: Callable[..., Any],
    noun: str,
    verb: str,
    doc: str,
    types: Mapping[str, Any],
    *,
    has_id: bool = False,
) -> None:
    """Let the framework see a handler with the name, the types and the id of its resource."""
    handler.__name__ = handler.__qualname__ = f"{verb}_{noun}"
    handler.__doc__ = doc
    seen = {"ctx": NamedDependency[RequestContext], **types}
    if has_id:
        seen[f"{noun}_id"] = FromPath[str]
    parameters = [
        Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind)
        for name, kind in seen.items()
        if name != "return"
    ]
    signature = Signature(parameters, return_annotation=seen["return"])
    handler.__signature__ = signature  # type: ignore[attr-defined]
    handler.__annotations__ = seen

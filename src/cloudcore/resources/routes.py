"""The routes of a resource's standard methods, with their texts for the OpenAPI document."""

# The framework reads annotations as they are at run time, so they are no strings here.

from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter, Signature
from types import ModuleType
from typing import Any, NamedTuple, cast

from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, JSONBody

from cloudcore.resource_names import with_article
from cloudcore.resources.methods import Methods
from cloudcore.resources.resource import Verb
from cloudcore.web.answers import Decorator, deletes
from cloudcore.web.app import Context, Needs


class _Route(NamedTuple):
    """A standard method, as the framework and the OpenAPI document see it."""

    declared: Callable[..., Decorator]
    """Returns the decorator for the handler; gets the path, the action and `opt`."""
    words: str
    answer: Callable[..., Any]
    """Handles a request. It gets the context, and then, as far as the route has them, the id, the
    body and the family's needs."""
    body: Any = None
    opt: Mapping[str, Any] = {}


def handlers_of(*sources: Methods[Any] | ModuleType) -> tuple[HTTPRouteHandler, ...]:
    """Return the standard routes of `Methods`, and the route handlers that modules define."""
    return tuple(
        handler
        for source in sources
        for handler in (
            standard_routes(source) if isinstance(source, Methods) else _defined_in(source)
        )
    )


def _defined_in(module: ModuleType) -> Iterator[HTTPRouteHandler]:
    for each in vars(module).values():
        if isinstance(each, HTTPRouteHandler) and each.fn.__module__ == module.__name__:
            yield each


def standard_routes(of: Methods[Any]) -> tuple[HTTPRouteHandler, ...]:
    """Return the routes of the standard methods that a resource has."""
    noun, bodies, answers = with_article(of.of.noun), of.bodies, of.answers
    created = f"Create {noun}. An account has at most {of.of.quota:,}."
    listed = f"List the account's {of.of.nouns}, oldest first."
    conflict, asked = {"statuses": (409,)}, {"query": bodies.query}
    refused = conflict if of.referrers else {}
    routes: Mapping[Verb, _Route] = {
        "create": _Route(answers.creates, created, of.answer_create, bodies.create, conflict),
        "list": _Route(answers.lists, listed, of.answer_list, opt=asked),
        "get": _Route(answers.gets, f"Return {noun}.", of.answer_get),
        "update": _Route(answers.updates, f"Change {noun}.", of.answer_update, bodies.update),
        "delete": _Route(deletes, f"Delete {noun}.", of.answer_delete, opt=refused),
    }
    return tuple(_handler(of, verb, routes[verb]) for verb in of.of.methods)


def custom_method(
    of: Methods[Any], name: str, action: str, *, status: int = 200, statuses: tuple[int, ...] = ()
) -> Decorator:
    """Return a decorator for a custom method: a POST with an idempotency key on one resource.

    Its path is the resource's path followed by `name`.
    """
    path = f"{of.of.path_of_one}/{name}"
    return of.answers.changes(path, action, status=status, statuses=statuses)


def _handler(of: Methods[Any], verb: Verb, route: _Route) -> HTTPRouteHandler:
    """Return a handler that has the name and the types of its resource."""
    types: dict[str, Any] = {"ctx": Context}
    if has_id := verb not in ("create", "list"):
        types[f"{of.of.one}_id"] = FromPath[str]
    if route.body is not None:
        types["data"] = cast("Any", JSONBody)[route.body]
    if of.after is not None and verb not in ("list", "get"):
        types["needs"] = cast("Any", Needs)[Any]

    async def handler(**given: Any) -> Any:  # noqa: ANN401 - of `types`
        return await route.answer(*(given[name] for name in types))

    seen = [Parameter(name, Parameter.KEYWORD_ONLY, annotation=types[name]) for name in types]
    name = f"list_account_{of.of.many}" if verb == "list" else f"{verb}_{of.of.one}"
    handler.__name__ = handler.__qualname__ = name
    handler.__doc__ = of.docs.get(verb, route.words)
    handler.__signature__ = Signature(seen)  # type: ignore[attr-defined]
    handler.__annotations__ = {**types, "return": None}
    path = of.of.path_of_one if has_id else of.of.path
    opt = dict(route.opt)
    if more := of.statuses.get(verb):
        opt["statuses"] = (*opt.get("statuses", ()), *more)
    return route.declared(path, of.of.action(verb), **opt)(handler)

"""Bodies of answers with one record or a page of them, and decorators of the routes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Generic, TypeVar, cast

from litestar import delete, get, patch, post
from litestar.handlers import HTTPRouteHandler
from msgspec import defstruct

from cloudcore.identity.routes.common import PeopleQuery
from cloudcore.identity.rows.owned import Listed, OwnedRows, Owner
from cloudcore.resource_names import with_article
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.pagination import NamedPageQuery, PageMeta, PageQuery, read_page
from cloudcore.wire import ResponseBody

B = TypeVar("B", bound=ResponseBody)
Decorator = Callable[[Callable[..., Any]], HTTPRouteHandler]


class Answers(Generic[B]):
    """The bodies of answers with a record: one under its name, and a page of them.

    The decorators make routes that answer with them; `opt` is the rest of a route's ``opt``.
    """

    def __init__(
        self, record: type[B], one: str, show: Callable[..., B], *, noun: str = ""
    ) -> None:
        """Make answers of a `record`, in the field `one`; `noun` is by default the same word.

        `show` returns the record for a row, which is its last argument.
        """
        self._record: Final = record
        self._one: Final = one
        self._noun: Final = noun or one.replace("_", " ")
        self.show: Final = show

    def one(self, *of: object) -> ResponseBody:
        """Return the answer with one record; the arguments are those of `show`."""
        made: ResponseBody = self._one_type(**{self._one: self.show(*of)})
        return made

    def many(self, records: Sequence[B], meta: PageMeta) -> ResponseBody:
        """Return the answer with a page of records."""
        made: ResponseBody = self._page_type(**{_plural(self._one): records, "meta": meta})
        return made

    async def page(
        self,
        ctx: RequestContext,
        rows: Listed[Any],
        owner: Owner,
        *of: object,
        query: type[PageQuery] = PageQuery,
    ) -> ResponseBody:
        """Return the page of an owner's rows that a request asks for; `show` takes `of` too."""
        asked = ctx.query(query)
        label = asked.name if isinstance(asked, NamedPageQuery) else None
        label = asked.address if isinstance(asked, PeopleQuery) else label
        found, meta = await read_page(
            ctx, asked, rows.list, rows.count, owner, label or "", key=rows.sort_key
        )
        return self.many([self.show(*of, each) for each in found], meta)

    async def page_of_account(self, ctx: RequestContext, rows: OwnedRows[Any]) -> ResponseBody:
        """Return the page of the account's rows that a request asks for, if policies allow it."""
        account_id = account_of(ctx)
        ctx.authorize(rows.crn(account_id, "*"))
        return await self.page(ctx, rows, account_id, query=NamedPageQuery)

    def creates(self, path: str, action: str, **opt: object) -> Decorator:
        """Return the decorator of a creation, which answers 201."""
        return _route(post, path, action, self._reply, {"idempotent": True, **opt})

    def lists(
        self, path: str, action: str, query: type[PageQuery] = PageQuery, **opt: object
    ) -> Decorator:
        """Return the decorator of a list."""
        return _route(get, path, action, self._page_type, {"query": query, **opt})

    def gets(self, path: str, action: str, **opt: object) -> Decorator:
        """Return the decorator of a read of one."""
        return _route(get, path, action, self._one_type, opt)

    def updates(self, path: str, action: str, **opt: object) -> Decorator:
        """Return the decorator of a change of fields."""
        return _route(patch, path, action, self._reply, opt)

    def changes(self, path: str, action: str, **opt: object) -> Decorator:
        """Return the decorator of another change, which answers 200."""
        return _route(post, path, action, self._reply, {"idempotent": True, **opt}, 200)

    @cached_property
    def _one_type(self) -> Any:  # noqa: ANN401 - a type
        noun = with_article(self._noun)
        words = f"{noun[0].upper()}{noun[1:]}, wrapped."
        return self._struct("One", self._one, self._record, words)

    @cached_property
    def _page_type(self) -> Any:  # noqa: ANN401 - a type
        records = Sequence[self._record]  # type: ignore[name-defined]
        words = f"A page of {_plural(self._noun)}."
        return self._struct("Many", _plural(self._one), records, words, meta=PageMeta)

    @property
    def _reply(self) -> Any:  # noqa: ANN401 - a type
        return cast("Any", Reply)[self._one_type]

    def _struct(self, kind: str, field: str, of: Any, words: str, **more: Any) -> Any:  # noqa: ANN401
        base = self._record.__name__.removesuffix("Record")
        name = f"{kind}{base if kind == 'One' else _plural(base)}"
        fields = [(field, of), *more.items()]
        return defstruct(
            name, fields, bases=(ResponseBody,), namespace={"__doc__": words}, kw_only=True
        )


def deletes(path: str, action: str, **opt: object) -> Decorator:
    """Return the decorator of a deletion."""
    return _route(delete, path, action, None, opt)


def _route(
    register: Callable[..., Decorator],
    path: str,
    action: str,
    returns: Any,  # noqa: ANN401 - a type
    opt: Mapping[str, object],
    status: int | None = None,
) -> Decorator:
    def decorated(handler: Callable[..., Any]) -> HTTPRouteHandler:
        if returns is not None:
            handler.__annotations__["return"] = returns
        return register(path, status_code=status, opt={"action": action, **opt})(handler)

    return decorated


def _plural(noun: str) -> str:
    return f"{noun[:-1]}ies" if noun.lower().endswith("policy") else f"{noun}s"

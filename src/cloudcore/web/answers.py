"""Copy rows into answers; bodies with one record or a page of records; route decorators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property, partial
from typing import Any, Final, Generic, TypeVar, cast, get_args

from litestar import delete, get, patch, post, put
from litestar.handlers import HTTPRouteHandler
from msgspec import UNSET, Struct, UnsetType, defstruct, structs

from cloudcore.resource_names import with_article
from cloudcore.web.bodies import ActingSource, acting_source
from cloudcore.web.context import Reply
from cloudcore.web.pagination import PageMeta, PageQuery, UuidPage
from cloudcore.wire import RFC3339, ResponseBody, rfc3339

B = TypeVar("B", bound=ResponseBody)
Decorator = Callable[[Callable[..., Any]], HTTPRouteHandler]


def answer_of(kind: Callable[..., B], row: object, **more: object) -> B:
    """Return an answer of the type `kind`, with the fields in `more` and others copied from `row`.

    Fields that neither has keep their defaults. Moments are written as RFC 3339. A stored
    `ActingSource` is decoded. If a field may be absent, a None in `row` makes it absent.
    """
    forms = _forms(kind)
    shared = (name for name in forms if name not in more and hasattr(row, name))
    found = {name: forms[name](getattr(row, name)) for name in shared}
    return kind(**found, **more)


@cache
def _forms(kind: type[Struct]) -> dict[str, Callable[[Any], object]]:
    return {each.name: _form(each.type) for each in structs.fields(kind)}


def _form(kind: Any) -> Callable[[Any], object]:  # noqa: ANN401 - a type
    kinds = (kind, *get_args(kind))
    if ActingSource in kinds:
        return acting_source
    write = rfc3339 if RFC3339 in kinds else _same
    absent = UNSET if UnsetType in kinds else None
    return lambda value: absent if value is None else write(value)


def _same(value: object) -> object:
    return value


class RecordAnswers(Generic[B]):
    """The types of answers with one record, under its name, and with a page of records.

    The decorators make routes that answer with these types; `opt` is the rest of a route's ``opt``.
    """

    def __init__(
        self,
        record: type[B],
        one: str,
        show: Callable[..., B] | None = None,
        *,
        many: str = "",
        noun: str = "",
        nouns: str = "",
        named: str = "",
    ) -> None:
        """Make the types of answers that contain records of the type `record`.

        - `one`: the field of the record in an answer with one.
        - `show`: returns the record for a row, its last argument; by default `answer_of`.
        - `many`: the field of the records in a page; by default the plural of `one`.
        - `noun`, `nouns`: a record and several in the OpenAPI document; by default as `one`.
        - `named`: what follows One and Many in the names of the types; by default the class name
          of the record without Record or Answer.
        """
        self._record: Final = record
        self._one: Final = one
        self._many: Final = many or _plural(one)
        self._noun: Final = noun or one.replace("_", " ")
        self._nouns: Final = nouns or _plural(self._noun)
        self._named: Final = named or record.__name__.removesuffix("Record").removesuffix("Answer")
        self.show: Final[Callable[..., B]] = show or partial(answer_of, record)

    def one(self, *of: object, **more: object) -> ResponseBody:
        """Return the answer with one record; the arguments are passed to `show`."""
        return self.wrapped(self.show(*of, **more))

    def wrapped(self, record: B) -> ResponseBody:
        """Return the answer with this record."""
        made: ResponseBody = self.one_type(**{self._one: record})
        return made

    def many(self, records: Sequence[B], meta: PageMeta) -> ResponseBody:
        """Return the answer with a page of records."""
        made: ResponseBody = self.page_type(**{self._many: records, "meta": meta})
        return made

    def creates(self, path: str, action: str, *, status: int = 201, **opt: object) -> Decorator:
        """Return a decorator for a route that creates a record."""
        return _route(post, path, action, self.reply, {"idempotent": True, **opt}, status)

    def lists(
        self, path: str, action: str, query: type[PageQuery | UuidPage] = PageQuery, **opt: object
    ) -> Decorator:
        """Return a decorator for a route that lists records."""
        return _route(get, path, action, self.page_type, {"query": query, **opt})

    def gets(self, path: str, action: str, **opt: object) -> Decorator:
        """Return a decorator for a route that reads a record."""
        return _route(get, path, action, self.one_type, opt)

    def puts(self, path: str, action: str, **opt: object) -> Decorator:
        """Return a decorator for a route that creates or replaces the record at its path."""
        return _route(put, path, action, self.reply, opt)

    def updates(self, path: str, action: str, **opt: object) -> Decorator:
        """Return a decorator for a route that changes fields of a record."""
        return _route(patch, path, action, self.reply, opt)

    def changes(self, path: str, action: str, *, status: int = 200, **opt: object) -> Decorator:
        """Return a decorator for a POST route that changes a record in another way."""
        return _route(post, path, action, self.reply, {"idempotent": True, **opt}, status)

    def begins_deletion(self, path: str, action: str, **opt: object) -> Decorator:
        """Return a decorator for a route that begins the deletion of a record, and answers 202."""
        return _route(delete, path, action, self.reply, opt, 202)

    @cached_property
    def one_type(self) -> Any:  # noqa: ANN401 - a type
        """Return the type of an answer with one record, such as ``OneQueue``."""
        noun = with_article(self._noun)
        words = f"{noun[0].upper()}{noun[1:]}, wrapped."
        return _struct(f"One{self._named}", self._one, self._record, words)

    @cached_property
    def page_type(self) -> Any:  # noqa: ANN401 - a type
        """Return the type of an answer with a page of records, such as ``ManyQueues``."""
        records = Sequence[self._record]  # type: ignore[name-defined]
        words = f"A page of {self._nouns}."
        name = f"Many{_plural(self._named)}"
        return _struct(name, self._many, records, words, meta=PageMeta)

    @property
    def reply(self) -> Any:  # noqa: ANN401 - a type
        """Return the type of the reply to a change, which contains a record."""
        return cast("Any", Reply)[self.one_type]


def deletes(path: str, action: str, **opt: object) -> Decorator:
    """Return a decorator for a route that deletes a record."""
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


def _struct(name: str, field: str, of: Any, words: str, **more: Any) -> Any:  # noqa: ANN401
    fields = [(field, of), *more.items()]
    return defstruct(
        name, fields, bases=(ResponseBody,), namespace={"__doc__": words}, kw_only=True
    )


def _plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}s"

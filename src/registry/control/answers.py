"""Answers made of rows: a field of an answer is the value of the same name, in its wire form."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, get_args

from msgspec import UNSET, Struct, UnsetType, structs

from cloudcore.web.references import ActingSource, acting_source
from cloudcore.wire import RFC3339, ResponseBody, rfc3339

B = TypeVar("B", bound=ResponseBody)


def answer_of(kind: Callable[..., B], row: object, **more: object) -> B:
    """Return an answer with `more` fields, and of the others those that a row has.

    Moments are written as RFC 3339, who acted as stored is read, and where a field may be absent
    but not null, None leaves it out.
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

"""Parse query strings strictly into a `msgspec.Struct`, like bodies.

Unknown parameters are ignored, because other software adds tracking parameters to links. A known
one must not be repeated and has one spelling: ``5``, never ``5.0``, ``+5``, ``05`` or ``1e1``.

A ``+`` means a space, as in forms, except in parameters marked `PLUS`, whose values have no spaces.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from functools import cache
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import inspect

from cloudcore.errors import InvalidInput
from cloudcore.web.strict_json import convert
from cloudcore.web.urlencoded import decode_text, split_fields

T = TypeVar("T")

PLUS: Final = msgspec.Meta(extra={"plus": True})
"""Mark for ``Annotated``: a ``+`` in this parameter is literal (RFC 3986)."""

_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,17}")
_BOOLEANS: Final = {"true": True, "false": False}


def parse_query(query: bytes, shape: type[T]) -> T:
    """Parse the parameters of a query string that are fields of `shape`.

    Raises:
        InvalidInput: with ``field`` and ``reason``.

    """
    kinds, pluses = _kinds(cast("Hashable", shape)), _pluses(cast("Hashable", shape))
    found: dict[str, Any] = {}
    for name, value in split_fields(query):
        parameter = decode_text(name, not_utf8="replace")
        if parameter not in kinds:
            continue
        if parameter in found:
            raise _refusal(parameter, "duplicate", "is given more than once")
        text = _text(parameter, value, plus_is_blank=parameter not in pluses)
        found[parameter] = _value(parameter, text, kinds[parameter])
    return convert(found, shape)


def _value(parameter: str, text: str, kind: type[inspect.Type]) -> object:
    if kind is inspect.IntType:
        if not _INTEGER.fullmatch(text):
            raise _refusal(parameter, "wrong_type", "is a whole number in decimal digits")
        return int(text)
    if kind is inspect.BoolType:
        if text not in _BOOLEANS:
            raise _refusal(parameter, "wrong_type", "is true or false")
        return _BOOLEANS[text]
    return text


def _text(parameter: str, encoded: bytes, *, plus_is_blank: bool) -> str:
    """Decode the value of a known parameter; reject invalid UTF-8 and null characters."""
    try:
        text = decode_text(encoded, plus_is_blank=plus_is_blank)
    except InvalidInput:
        raise _refusal(parameter, "invalid_text", "is not UTF-8") from None
    if "\0" in text:
        raise _refusal(parameter, "invalid_text", "holds a null character")
    return text


@cache
def _kinds(shape: Hashable) -> dict[str, type[inspect.Type]]:
    """Return the type of each parameter, without None."""
    described = inspect.type_info(shape)
    assert isinstance(described, inspect.StructType)
    return {field.encode_name: _kind(field.type) for field in described.fields}


@cache
def _pluses(shape: Hashable) -> frozenset[str]:
    """Return the parameters marked `PLUS`."""
    described = inspect.type_info(shape)
    assert isinstance(described, inspect.StructType)
    return frozenset(
        field.encode_name
        for field in described.fields
        if isinstance(field.type, inspect.Metadata) and (field.type.extra or {}).get("plus")
    )


def _kind(described: inspect.Type) -> type[inspect.Type]:
    if isinstance(described, inspect.Metadata):
        return _kind(described.type)
    if isinstance(described, inspect.UnionType):
        inner = [kind for kind in described.types if not isinstance(kind, inspect.NoneType)]
        assert len(inner) == 1, "a query parameter has one type"
        return _kind(inner[0])
    return type(described)


def _refusal(field: str, reason: str, words: str) -> InvalidInput:
    return InvalidInput(f"{field} {words}", field=field, reason=reason)

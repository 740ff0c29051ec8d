"""Parse query strings and URL-encoded forms: into fields, and strictly into a `msgspec.Struct`.

Fields are joined by ``&``, name and value by ``=``; both are percent-encoded UTF-8 (the type
application/x-www-form-urlencoded of the URL Standard, §5.1). A ``+`` means a space in forms, but a
plus sign in RFC 3986. A percent sign that begins no escape stands for itself.

In a query, unknown parameters are ignored, because other software adds tracking parameters to
links. A known parameter must not be repeated, and a number has one spelling: ``5``, never ``5.0``,
``+5``, ``05`` or ``1e1``. A ``+`` means a space, as in forms, except in parameters marked `PLUS`,
whose values have no spaces.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from functools import cache, partial
from typing import Any, Final, Literal, TypeVar, cast
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import inspect

from cloudcore.errors import InvalidInput
from cloudcore.web.strict_json import convert

NotUtf8 = Literal["strict", "replace"]
"""How to treat bytes that are not UTF-8: raise `InvalidInput`, or replace them by U+FFFD."""

_BROKEN_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")


def parse_fields(
    encoded: bytes,
    *,
    max_fields: int,
    counts_empty: bool = True,
    plus_is_blank: bool = True,
    not_utf8: NotUtf8 = "strict",
    unambiguous: bool = False,
) -> list[tuple[str, str]]:
    """Return (name, value) of each field, in order, without the empty fields of ``&&``.

    If `counts_empty`, empty fields count towards `max_fields`. With `unambiguous`, no name may be
    repeated. For the other options see `decode_text`.

    Raise `InvalidInput` if there are too many fields, or a field breaks one of these rules.
    """
    if counts_empty and encoded.count(b"&") >= max_fields:
        raise _too_many()
    fields = split_fields(encoded)
    if len(fields) > max_fields:
        raise _too_many()
    decode = partial(
        decode_text, plus_is_blank=plus_is_blank, not_utf8=not_utf8, unambiguous=unambiguous
    )
    found: list[tuple[str, str]] = []
    names: set[str] = set()
    for raw_name, raw_value in fields:
        name = decode(raw_name)
        if unambiguous and name in names:
            raise InvalidInput("a parameter is given more than once")
        names.add(name)
        found.append((name, decode(raw_value)))
    return found


def split_fields(encoded: bytes) -> list[tuple[bytes, bytes]]:
    """Return (name, value) of each field as sent; the value is empty without a ``=``."""
    return [field.partition(b"=")[::2] for field in encoded.split(b"&") if field]


def decode_text(
    encoded: bytes,
    *,
    plus_is_blank: bool = True,
    not_utf8: NotUtf8 = "strict",
    unambiguous: bool = False,
) -> str:
    """Percent-decode a name or a value, once.

    Raise `InvalidInput` if it is not UTF-8 and `not_utf8` is "strict"; with `unambiguous`, also if
    a percent sign begins no escape, or there is a null character.
    """
    if unambiguous and _BROKEN_ESCAPE.search(encoded):
        raise InvalidInput("a percent sign begins no escape")
    raw = encoded.replace(b"+", b" ") if plus_is_blank else encoded
    if b"%" in raw:
        raw = unquote_to_bytes(raw)
    try:
        text = raw.decode("utf-8", not_utf8)
    except UnicodeDecodeError:
        raise InvalidInput("the parameters are not UTF-8") from None
    if unambiguous and "\0" in text:
        raise InvalidInput("a parameter holds a null character")
    return text


def _too_many() -> InvalidInput:
    return InvalidInput("there are too many parameters")


T = TypeVar("T")

PLUS: Final = msgspec.Meta(extra={"plus": True})
"""Mark for ``Annotated``: a ``+`` in this parameter is literal (RFC 3986)."""

_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,17}")
_BOOLEANS: Final = {"true": True, "false": False}


def parse_query(query: bytes, shape: type[T]) -> T:
    """Parse the parameters of a query string that are fields of `shape`; ignore others.

    Raises:
        InvalidInput: a parameter is invalid; has ``field`` and ``reason``.

    """
    kinds = _kinds(cast("Hashable", shape))
    found: dict[str, Any] = {}
    for name, value in split_fields(query):
        parameter = decode_text(name, not_utf8="replace")
        if parameter not in kinds:
            continue
        if parameter in found:
            raise _refusal(parameter, "duplicate", "is given more than once")
        kind, plus_is_blank = kinds[parameter]
        text = _text(parameter, value, plus_is_blank=plus_is_blank)
        found[parameter] = _value(parameter, text, kind)
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
def _kinds(shape: Hashable) -> dict[str, tuple[type[inspect.Type], bool]]:
    """Map each parameter to its type, without None, and True if a ``+`` in it means a space."""
    described = inspect.type_info(shape)
    assert isinstance(described, inspect.StructType)
    return {
        field.encode_name: (_kind(field.type), not _has_plus(field.type))
        for field in described.fields
    }


def _has_plus(described: inspect.Type) -> bool:
    return isinstance(described, inspect.Metadata) and bool((described.extra or {}).get("plus"))


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

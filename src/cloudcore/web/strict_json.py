"""Parse JSON strictly: refuse what two parsers could read differently.

Besides syntax errors, these are refused: a byte order mark, invalid UTF-8, duplicate keys, NaN and
the infinities, numbers beyond 64 bits, nesting beyond `MAX_DEPTH`, more names and values than
`MAX_PARTS`, null characters and lone surrogates in text (PostgreSQL can store neither).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn, TypeVar

import msgspec
from msgspec import inspect

from cloudcore.errors import InvalidInput
from cloudcore.json_size import NamedTwice, json_size, unique_members

_BOUND: Final = re.compile(
    r"Expected `(?P<kind>str|array|object|int|float)` (?P<length>of length )?"
    r"(?P<side>[<>]=) (?P<number>-?[0-9.]+)"
)
_TYPE: Final = re.compile(r"Expected `(?P<wanted>[a-z |]+)`, got `(?P<found>[a-z]+)`")
_SIDES: Final = {">=": "at least", "<=": "at most"}
_UNITS: Final = {
    "str": ("character", "characters"),
    "array": ("entry", "entries"),
    "object": ("member", "members"),
}
_KINDS: Final = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "datetime": "a time",
}
_OTHERS: Final = {
    "Invalid RFC3339 encoded datetime": "must be a time such as 2026-01-31T12:00:00Z",
    "Expected `datetime` with a timezone component": "must be a time with its offset, such as Z",
}


def _plain_words(complaint: str) -> str:
    """Return msgspec's complaint about a value in plain words, such as ``at most 3 entries``.

    A complaint of an unknown form is returned unchanged, except for its capital and its quotes.
    """
    if found := _BOUND.fullmatch(complaint):
        bound = f"{_SIDES[found['side']]} {found['number']}"
        if found["length"] is None:
            return bound
        return f"{bound} {_UNITS[found['kind']][found['number'] != '1']}"
    if found := _TYPE.fullmatch(complaint):
        wanted = found["wanted"].split(" | ")
        return f"must be {' or '.join(map(_kind, wanted))}, not {_kind(found['found'])}"
    if complaint in _OTHERS:
        return _OTHERS[complaint]
    return complaint[:1].lower() + complaint[1:].replace("`", "")


def _kind(name: str) -> str:
    return _KINDS.get(name, name)


_STEP: Final = re.compile(r"\[[^\]]*\]|[^.\[\]]+")


def _choices(shape: Any, path: str) -> list[str]:  # noqa: ANN401 - a type
    """Return the allowed values of the enumeration at a path such as ``rules[0].selector``."""
    kinds = list(_plain(inspect.type_info(shape)))
    for step in _STEP.findall(path):
        kinds = [each for kind in kinds for inner in _inside(kind, step) for each in _plain(inner)]
    return [str(value) or '""' for kind in kinds for value in _values(kind)]


def _plain(kind: inspect.Type) -> Iterator[inspect.Type]:
    """Yield the types that make up a type: without metadata, and each member of a union."""
    if isinstance(kind, inspect.Metadata):
        yield from _plain(kind.type)
    elif isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from _plain(each)
    else:
        yield kind


def _inside(kind: inspect.Type, step: str) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.StructType):
        yield from (field.type for field in kind.fields if field.encode_name == step)
    elif isinstance(kind, inspect.CollectionType):
        yield kind.item_type
    elif isinstance(kind, inspect.DictType):
        yield kind.value_type


def _values(kind: inspect.Type) -> Iterator[object]:
    if isinstance(kind, inspect.LiteralType):
        yield from kind.values
    elif isinstance(kind, inspect.EnumType):
        yield from (member.value for member in kind.cls)


MAX_DEPTH: Final = 64
MAX_PARTS: Final = 20_000
"""Maximum names and values in a document; a parser creates an object for each."""

T = TypeVar("T")

_INTEGER_DIGITS: Final = 19
_INTEGER_END: Final = 1 << 63
_TOO_LARGE: Final = "has a number beyond 64 bits"
_UNTEXT: Final = re.compile("[\0\ud800-\udfff]")
_AT: Final = re.compile(r" - at `(?:key in )?\$\.?([^`]*)`\Z")
_NAMED: Final = re.compile(r"Object (missing required|contains unknown) field `(.*?)`", re.DOTALL)
_FIELD_CHARACTERS: Final = 128


class _Refused(ValueError):
    """The document is valid JSON but breaks one of this module's rules."""

    def __init__(self, reason: str, words: str) -> None:
        super().__init__(words)
        self.reason = reason


def decode(document: bytes, shape: type[T]) -> T:
    """Parse `document` and convert it to `shape`.

    Raises:
        InvalidInput: the document is invalid; has ``field``, the path of the first invalid field,
            and ``reason``.

    """
    saturates = getattr(shape, "saturates_integers", False)
    most = getattr(shape, "max_parts", MAX_PARTS)
    return convert(parse(document, _SATURATING if saturates else _DECODER, most), shape)


def parse(document: bytes, decoder: json.JSONDecoder | None = None, most: int = MAX_PARTS) -> Any:  # noqa: ANN401 - JSON
    """Parse `document`, which may have at most `most` names and values.

    Raises:
        InvalidInput: the document is refused; has ``field`` ``body``, and ``reason``.

    """
    if json_size(document, most).parts > most:
        words = f"the body has more than {most} names and values; send less at once"
        raise _refusal("body", "too_many_values", words)
    try:
        text = document.decode()
        value = (decoder or _DECODER).decode(text)
        if text.count("[") + text.count("{") > MAX_DEPTH:
            _check_depth(value)
        if "\\u" in text:  # only escapes can produce null characters and surrogates
            _check_texts(value)
    except UnicodeDecodeError:
        raise _refusal("body", "invalid_text", "the body is not UTF-8") from None
    except RecursionError:
        raise _refusal("body", "too_deep", "the body is nested too deep") from None
    except NamedTwice:
        words = "the body has an object with the same key twice"
        raise _refusal("body", "duplicate_key", words) from None
    except _Refused as refused:
        raise _refusal("body", refused.reason, f"the body {refused}") from None
    except ValueError:
        raise _refusal("body", "not_json", "the body is not JSON") from None
    return value


def convert(value: Any, shape: type[T]) -> T:  # noqa: ANN401 - JSON
    """Convert parsed JSON to `shape` without coercing types; raise the errors of `decode`."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise _explained(str(error), shape) from None


def _explained(complaint: str, shape: Any) -> InvalidInput:  # noqa: ANN401 - a type
    """Convert msgspec's message about the first invalid field to our error."""
    at = _AT.search(complaint)
    path = at[1] if at else ""
    what = complaint[: at.start()] if at else complaint
    named = _NAMED.match(what)
    if named is None:
        words = _plain_words(what)
        if what.startswith("Invalid enum"):
            words = f"must be one of {', '.join(_choices(shape, path))}"
        field = path or "body"
        return _refusal(field, _reason(what), f"{field[:_FIELD_CHARACTERS]}: {words}")
    reason, words = (
        ("missing", "is required")
        if named[1] == "missing required"
        else ("unknown_field", "is not a field here")
    )
    field = f"{path}.{named[2]}" if path else named[2]
    return _refusal(field, reason, f"{field[:_FIELD_CHARACTERS]} {words}")


def _reason(complaint: str) -> str:
    """Return the reason code for msgspec's message about a value."""
    if "matching regex" in complaint:
        return "malformed"
    if re.match(r"Expected `(int|float|str|array|object)` (?!\|)", complaint):
        return "out_of_range"  # of a number, or of a length
    if complaint.startswith("Expected `datetime` with"):
        return "without_offset"
    if complaint.startswith("Expected"):
        return "wrong_type"
    return "not_allowed" if complaint.startswith("Invalid enum") else "malformed"


def _refusal(field: str, reason: str, words: str) -> InvalidInput:
    return InvalidInput(words, field=field[:_FIELD_CHARACTERS], reason=reason)


def _integer(digits: str) -> int:
    value = int(digits) if len(digits.lstrip("-")) <= _INTEGER_DIGITS else _INTEGER_END
    if not -_INTEGER_END <= value < _INTEGER_END:
        raise _Refused("out_of_range", _TOO_LARGE)
    return value


def _saturated(digits: str) -> int:
    """Return an integer, clamped to 64 bits."""
    try:
        return _integer(digits)
    except _Refused:
        return -_INTEGER_END if digits.startswith("-") else _INTEGER_END - 1


def _number(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise _Refused("out_of_range", _TOO_LARGE)
    return value


def _no_constant(_: str) -> NoReturn:
    raise _Refused("not_json", "is not JSON, which has neither NaN nor infinities")


def _decoder(parse_int: Callable[[str], int]) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=unique_members,
        parse_int=parse_int,
        parse_float=_number,
        parse_constant=_no_constant,
    )


_DECODER: Final = _decoder(_integer)
_SATURATING: Final = _decoder(_saturated)


def _check_depth(value: Any) -> None:  # noqa: ANN401 - JSON
    level, depth = [value], 0
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        if depth > MAX_DEPTH:
            raise _Refused("too_deep", "is nested too deep")
        level = [
            child for item in level for child in (item.values() if isinstance(item, dict) else item)
        ]


def _check_texts(value: Any) -> None:  # noqa: ANN401 - JSON
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            if _UNTEXT.search(item):
                raise _Refused("invalid_text", "has a null character, or half a surrogate")
        elif isinstance(item, dict):
            waiting.extend(item)
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)

"""What msgspec complains of in a value, in the words of people who write JSON."""

from __future__ import annotations

import re
from typing import Final

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


def plain_words(complaint: str) -> str:
    """Return a complaint about a value in plain words: ``at most 3 entries``.

    One of another form is returned as it is, but for its capital and its quotes.
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

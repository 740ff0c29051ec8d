"""Complaints of ``/v1`` about the values of fields, in the words of a form."""

from __future__ import annotations

import re
from typing import Final

_BOUND: Final = re.compile(
    r"(?P<path>[^\s:]+): expected (?P<kind>str|array|int) (?P<length>of length )?"
    r"(?P<side>>=|<=) (?P<number>\d+)"
)
_FIELD: Final = re.compile(r"[a-z]+(?:_[a-z]+)+(?=: )")
_UNITS: Final = {"str": "character", "array": "entry"}
_MANY: Final = {"character": "characters", "entry": "entries"}


def in_form_words(message: str) -> str:
    """Return a message that tells a bound of a field as a form would.

    Of any other, the name of the field at its beginning is written in words.
    """
    found = _BOUND.fullmatch(message)
    if found is None or (found["kind"] == "int") is (found["length"] is not None):
        named = _FIELD.match(message)
        return message if named is None else f"{_words(named[0])}{message[named.end() :]}"
    name = _words(found["path"].rpartition(".")[2].partition("[")[0])
    side = "at least" if found["side"] == ">=" else "at most"
    if found["length"] is None:
        return f"{name}: {side} {found['number']}"
    unit = _UNITS[found["kind"]]
    words = unit if found["number"] == "1" else _MANY[unit]
    return f"{name}: {side} {found['number']} {words}"


def _words(name: str) -> str:
    return name.replace("_", " ")

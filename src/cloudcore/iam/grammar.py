"""Check the forms of values in policy documents; each error names its field."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from cloudcore.errors import InvalidInput

MAX_ENTRIES: Final = 100
"""Maximum entries of a list of principals, actions, resources or addresses."""

_SUGGESTIONS: Final = 3
_MAX_COMPARED: Final = 100
"""Maximum characters of a value that `nearest` compares: longer values would take too long."""


class StringForm(NamedTuple):
    """A regular expression for strings, and its description for error messages."""

    grammar: re.Pattern[str]
    words: str


def as_object(value: Any, where: str, keys: set[str]) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """Return `value` if it is an object with no keys but `keys`; else raise `InvalidInput`.

    `where` is the path of the field, for the error; "" if `value` is the whole document.
    """
    if not isinstance(value, dict):
        raise refusal(where or "document", "wrong_type", "an object")
    unknown = value.keys() - keys
    if unknown:
        named = ascii(min(unknown)[:64])[1:-1]  # lone surrogates cannot be encoded
        field = f"{where}.{named}" if where else named
        known = ", ".join(sorted(keys))
        raise refusal(field, "unknown_field", f"not a field here; there are {known}")
    return value


def as_list(value: Any, where: str, form: StringForm) -> tuple[str, ...]:  # noqa: ANN401 - JSON
    """Return the entries of `value`, which must be 1 to `MAX_ENTRIES` strings of a form.

    Raise `InvalidInput` for the field `where` if it is not; None means that the field is missing.
    """
    words = f"a list of 1 to {MAX_ENTRIES} strings"
    if not isinstance(value, list):
        raise refusal(where, "missing" if value is None else "wrong_type", words)
    if not 1 <= len(value) <= MAX_ENTRIES:
        raise refusal(where, "out_of_range", words)
    return tuple(as_text(item, where, form) for item in value)


def as_text(value: Any, where: str, form: StringForm) -> str:  # noqa: ANN401 - JSON
    """Return `value` if it is a string of a form; else raise `InvalidInput` for field `where`."""
    if not isinstance(value, str):
        raise refusal(where, "wrong_type", form.words)
    if not form.grammar.fullmatch(value):
        raise refusal(where, "malformed", form.words)
    return value


def refusal(field: str, reason: str, words: str, **params: Any) -> InvalidInput:  # noqa: ANN401
    """Return the error for an invalid field: `reason` is a code, `words` the requirement."""
    return InvalidInput(f"{field}: {words}", field=field, reason=reason, **params)


def nearest(value: str, known: Iterable[str]) -> list[str]:
    """Return up to three of the `known` words that are similar to `value`, best first."""
    by_lower = {each.lower(): each for each in known}
    near = get_close_matches(value[:_MAX_COMPARED].lower(), by_lower, n=_SUGGESTIONS)
    return [by_lower[each] for each in near]

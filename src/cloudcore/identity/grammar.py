"""The forms that values in policy documents have; each refusal names its field."""

from __future__ import annotations

import re
from typing import Any, Final

from cloudcore.errors import InvalidInput

MAX_ENTRIES: Final = 100
"""How many principals, actions, resources or addresses one list may have."""


def as_object(value: Any, where: str, keys: set[str]) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """Return an object that has no keys but `keys`."""
    if not isinstance(value, dict):
        raise refusal(where, "an object")
    unknown = value.keys() - keys
    if unknown:
        named = ascii(min(unknown)[:64])[1:-1]  # it may hold what no answer can be encoded with
        raise refusal(f"{where}.{named}", "no such field here")
    return value


def as_list(value: Any, where: str, grammar: re.Pattern[str]) -> tuple[str, ...]:  # noqa: ANN401
    """Return a list of strings that all match `grammar`."""
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_ENTRIES:
        raise refusal(where, f"a list of 1 to {MAX_ENTRIES} strings")
    return tuple(as_text(item, where, grammar) for item in value)


def as_text(value: Any, where: str, grammar: re.Pattern[str]) -> str:  # noqa: ANN401
    """Return a string that matches `grammar`."""
    if not isinstance(value, str) or not grammar.fullmatch(value):
        raise refusal(where, "not of the form this field has")
    return value


def refusal(field: str, reason: str) -> InvalidInput:
    """Return the error for a field that is not what it must be."""
    return InvalidInput(f"{field}: {reason}", field=field, reason=reason)

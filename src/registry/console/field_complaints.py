"""Complaints of ``/v1`` about the values of fields, in the words of a form."""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = re.compile(r"[a-z]+(?:_[a-z]+)+(?=: )")
_PATH_OF_BOUND: Final = re.compile(r"[^\s:]+(?=: at (?:least|most) \d)")


def in_form_words(message: str) -> str:
    """Return a message with the name of the field at its beginning in words.

    Of a bound, the path to the field is left out: in a form it is clear which one is meant.
    """
    if found := _PATH_OF_BOUND.match(message):
        name = found[0].rpartition(".")[2].partition("[")[0]
    elif found := _NAME.match(message):
        name = found[0]
    else:
        return message
    return f"{name.replace('_', ' ')}{message[found.end() :]}"

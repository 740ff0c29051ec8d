"""Refuse requests with card numbers, which a browser must send only to the payment processor.

A card number is 13 to 19 digits, perhaps in groups, with a valid check digit (ISO/IEC 7812-1, annex
B). Any characters but letters may separate the groups, and digits of any script count, even
superscripts. A request with a card number is refused before any of the request is stored; the error
does not repeat the number.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

from cloudcore.errors import InvalidInput

_GROUPED: Final = re.compile(r"\d+(?:[\W_]{1,3}\d+)*")
_GROUP: Final = re.compile(r"\d+")
_ESCAPED: Final = re.compile(r"\\u([0-9a-fA-F]{4})")
_FEWEST, _MOST = 13, 19
MAX_BODY_BYTES: Final = 4096
"""The largest body that is searched: on the event loop, in less than a tenth of a second."""


class CardNumberGiven(InvalidInput):
    """A request contains a card number."""

    def __init__(self) -> None:
        super().__init__(
            "the request has the number of a card, which does not belong here: give a token of the"
            " payment processor",
            field="body",
            reason="card_number",
        )


def check_body(body: bytes) -> None:
    """Raise `CardNumberGiven` if the body of a request contains a card number anywhere.

    JSON escapes are decoded first, also in names of fields.
    """
    text = body.decode("utf-8", "replace")
    check_text(_ESCAPED.sub(lambda found: chr(int(found[1], 16)), text))


def check_text(text: str) -> None:
    """Raise `CardNumberGiven` if a text contains a card number."""
    if has_card_number(text):
        raise CardNumberGiven


def has_card_number(text: str) -> bool:
    """Return True if a text contains a card number."""
    return any(
        any(map(_is_right, _numbers(_GROUP.findall(found.group()))))
        for found in _GROUPED.finditer(unicodedata.normalize("NFKC", text))
    )


def _numbers(groups: list[str]) -> Iterator[str]:
    """Yield each number of 13 to 19 digits that consecutive groups of digits form when joined."""
    for first in range(len(groups)):
        joined = ""
        for group in groups[first : first + _MOST]:
            joined += group
            if len(joined) > _MOST:
                break
            if len(joined) >= _FEWEST:
                yield joined


def _is_right(digits: str) -> bool:
    """Return True if the last digit is the Luhn check digit of the others."""
    doubled = [int(digit) * 2 for digit in digits[-2::-2]]
    rest = [int(digit) for digit in digits[-1::-2]]
    return (sum(rest) + sum(each - 9 if each > 9 else each for each in doubled)) % 10 == 0

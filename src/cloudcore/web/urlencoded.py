"""The one reader of query strings and URL-encoded forms: bytes in, pairs of name and value out.

Fields are joined by ``&``, name and value by ``=``; both are percent-encoded UTF-8 (the type
application/x-www-form-urlencoded of the URL Standard, §5.1). A ``+`` stands for a blank in forms,
for itself in RFC 3986. A percent sign that begins no escape stands for itself.
"""

from __future__ import annotations

import re
from typing import Final, Literal
from urllib.parse import unquote_to_bytes

from cloudcore.errors import InvalidInput

NotUtf8 = Literal["strict", "replace"]
"""What becomes of bytes that are not UTF-8: InvalidInput, or U+FFFD in their place."""

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
    """Return name and value of each field, in order, without the empty fields of ``&&``.

    The empty ones count towards `max_fields` if `counts_empty`. With `unambiguous`, no name may be
    repeated. For the other options see `decode_text`.

    Raises:
        InvalidInput: there are too many fields, or one is refused.

    """
    if counts_empty and encoded.count(b"&") >= max_fields:
        raise _too_many()
    fields = split_fields(encoded)
    if len(fields) > max_fields:
        raise _too_many()
    found: list[tuple[str, str]] = []
    names: set[str] = set()
    for raw_name, raw_value in fields:
        name = decode_text(
            raw_name, plus_is_blank=plus_is_blank, not_utf8=not_utf8, unambiguous=unambiguous
        )
        if unambiguous:
            if name in names:
                raise InvalidInput("a parameter is given more than once")
            names.add(name)
        value = decode_text(
            raw_value, plus_is_blank=plus_is_blank, not_utf8=not_utf8, unambiguous=unambiguous
        )
        found.append((name, value))
    return found


def split_fields(encoded: bytes) -> list[tuple[bytes, bytes]]:
    """Return name and value of each field as sent; the value is empty without a ``=``."""
    return [field.partition(b"=")[::2] for field in encoded.split(b"&") if field]


def decode_text(
    encoded: bytes,
    *,
    plus_is_blank: bool = True,
    not_utf8: NotUtf8 = "strict",
    unambiguous: bool = False,
) -> str:
    """Percent-decode a name or a value, once.

    Raises:
        InvalidInput: it is not UTF-8, unless that is replaced. With `unambiguous`: a percent sign
            begins no escape, or there is a null character.

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

"""Values of metadata in headers: as UTF-8, or as the encoded words of RFC 2047.

In one pass, since a value may be as long as a head: the parser of `email` takes time that grows
with the square. What is no encoded word is left as it is.
"""

from __future__ import annotations

import re
from binascii import Error as Base64Error
from binascii import a2b_base64, a2b_qp, b2a_base64
from typing import Final

_CHARSETS: Final = ("us-ascii", "utf-8", "iso-8859-1")
_ONE: Final = r"=\?[A-Za-z0-9-]{1,40}\?[bBqQ]\?[!->@-~]*\?="
_WORD: Final = re.compile(_ONE)
_WORDS: Final = re.compile(rf"{_ONE}(?:[ \t]+{_ONE})*")
"""The blanks between two encoded words are not of the value."""


def decode(header: str) -> str:
    """Return the value that a header gives, received as Latin-1."""
    try:
        value = header.encode("latin-1").decode()
    except UnicodeDecodeError:
        return header
    try:
        return _WORDS.sub(_decoded, value)
    except (Base64Error, LookupError, UnicodeDecodeError):
        return value


def encode(value: str) -> str:
    """Return a value as a header can hold it: as it is, or as one encoded word.

    `email.header.Header` would break it at U+0085 and other ends of lines.
    """
    if value.isascii() and value == value.strip() and decode(value) == value:
        return value
    return f"=?utf-8?b?{b2a_base64(value.encode(), newline=False).decode()}?="


def _decoded(words: re.Match[str]) -> str:
    """Return the text of adjacent encoded words; a character may be split among those of a charset.

    Raises:
        Base64Error, LookupError, UnicodeDecodeError: they are none.

    """
    parts: list[tuple[str, bytes]] = []
    for word in _WORD.findall(words[0]):
        charset, encoding, text = word[2:-2].split("?")
        charset = charset.lower()
        if charset not in _CHARSETS:
            raise LookupError(charset)
        is_base64 = encoding in "bB"
        part = a2b_base64(text, strict_mode=True) if is_base64 else a2b_qp(text, header=True)
        if parts and parts[-1][0] == charset:
            part = parts.pop()[1] + part
        parts.append((charset, part))
    return "".join(part.decode(charset) for charset, part in parts)

"""The one reader of ``Authorization: Basic`` (RFC 7617)."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from typing import Final

_BASIC: Final = re.compile(rb"basic +([A-Za-z0-9+/]+={0,2}) *", re.IGNORECASE)


def decode_basic(header: bytes) -> tuple[bytes, bytes] | None:
    """Return user and password of a header's value, or None if it is no Basic credential."""
    found = _BASIC.fullmatch(header)
    if found is None:
        return None
    try:
        user, colon, password = b64decode(found[1], validate=True).partition(b":")
    except binascii.Error:
        return None
    return (user, password) if colon else None

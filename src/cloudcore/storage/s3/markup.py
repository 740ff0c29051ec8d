"""Write the XML of the S3 endpoint.

By hand, since ElementTree writes the control characters that keys may hold as they are; S3 writes
them as references, and clients read those.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

NAMESPACE: Final = "http://s3.amazonaws.com/doc/2006-03-01/"
DECLARATION: Final = '<?xml version="1.0" encoding="UTF-8"?>\n'
_SPECIAL: Final = re.compile('[\x00-\x08\x0b-\x1f&<>"\x7f-\x9f\ufffe\uffff]')
_NAMED: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}


def tag(name: str, *content: str) -> str:
    """Return an element around other elements."""
    return f"<{name}>{''.join(content)}</{name}>"


def text(name: str, value: str | int | bool) -> str:  # noqa: FBT001
    """Return an element with a text."""
    if isinstance(value, bool):
        value = "true" if value else "false"
    return f"<{name}>{escape(str(value))}</{name}>"


def escape(value: str) -> str:
    """Return a text as XML holds it."""
    return _SPECIAL.sub(lambda found: _NAMED.get(found[0]) or f"&#x{ord(found[0]):x};", value)


def document(name: str, content: Iterable[str], *, namespace: bool = True) -> bytes:
    """Return a whole document."""
    opening = f'{name} xmlns="{NAMESPACE}"' if namespace else name
    return f"{DECLARATION}<{opening}>{''.join(content)}</{name}>".encode("utf-8", "replace")

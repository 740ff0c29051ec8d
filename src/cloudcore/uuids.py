"""Ids on the wire: UUIDs, which callers write in any case; kept and shown in lower case.

RFC 9562 §4 asks for this. `cloudcore.crn.lower_ids` is for ids inside of resource names.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from msgspec import Meta

UUID_PATTERN: Final = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
"""Not anchored; matches in linear time."""

_UUID: Final = re.compile(UUID_PATTERN)

Uuid = Annotated[str, Meta(extra_json_schema={"format": "uuid"})]
"""An id in an answer, or one that `parse_uuid` reads."""


def parse_uuid(text: str) -> str | None:
    """Return an id in the form it is kept in, or None if `text` is no UUID."""
    return text.lower() if _UUID.fullmatch(text) else None

"""Ids in requests and responses: UUIDs, accepted in any case, stored and shown in lower case.

RFC 9562 §4 requires this. For ids within CRNs see `cloudcore.crn.lower_ids`.
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
    """Return a UUID in lower case, or None if `text` is not one."""
    return text.lower() if _UUID.fullmatch(text) else None


def is_canonical_uuid(text: str) -> bool:
    """Return True if `text` is a UUID in lower case, as ids are stored."""
    return parse_uuid(text) == text

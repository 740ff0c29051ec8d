"""Lists of entity tags in ``If-Match`` and ``If-None-Match`` (RFC 9110 §8.8.3, §13.1)."""

from __future__ import annotations

import re
from typing import Final

_ENTITY_TAG: Final = re.compile(r'(W/)?"([^"]*)"')


def tags_named(header: str, *, strongly: bool = False) -> frozenset[str]:
    """Return the entity tags in a list, without their quotes; ``*`` yields ``*``.

    With `strongly`, as for ``If-Match``, weak entity tags are left out (§13.1.1).
    """
    if header.strip() == "*":
        return frozenset({"*"})
    tags = _ENTITY_TAG.findall(header)
    return frozenset(tag for weak, tag in tags if tag != "*" and not (strongly and weak))

"""Refuse a JSON object that names a key twice: two readers could read two documents.

Parsers differ in which of the two values they keep, so what one of them checked another may not see
(CVE-2021-41190).
"""

from __future__ import annotations

from typing import Any


class NamedTwice(ValueError):
    """An object names a key twice."""


def unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of an object; an ``object_pairs_hook`` of `json`.

    Raises:
        NamedTwice.

    """
    found = dict(pairs)
    if len(found) != len(pairs):
        raise NamedTwice("an object names a key twice")
    return found

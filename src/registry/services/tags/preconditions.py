"""Parse ``If-Match`` and ``If-None-Match`` of a tag for both planes (RFC 9110 §13).

The entity tag of a tag is ``"<digest>"``, always strong.
"""

from __future__ import annotations

import re
from typing import Final

from registry.services.tags.pointers import Precondition

_ENTITY_TAG: Final = re.compile(r'(W/)?"([^"]*)"')


def tag_precondition(match: str | None, none_match: str | None) -> Precondition | None:
    """Return the precondition in ``If-Match`` and ``If-None-Match``, or None without either.

    A header without a valid entity tag (quotes left out, ``"*"`` in quotes) fails for every
    existing tag, as the client did want some condition.
    """
    if match is None and none_match is None:
        return None
    return Precondition(
        None if match is None else digests_named(match, strongly=True),
        None if none_match is None else digests_named(none_match) or frozenset({"*"}),
    )


def digests_named(header: str, *, strongly: bool = False) -> frozenset[str]:
    """Return the digests in a list of entity tags; ``*`` yields ``*``.

    With `strongly`, as for ``If-Match``, weak entity tags are left out (RFC 9110 §13.1.1).
    """
    if header.strip() == "*":
        return frozenset({"*"})
    tags = _ENTITY_TAG.findall(header)
    return frozenset(tag for weak, tag in tags if tag != "*" and not (strongly and weak))

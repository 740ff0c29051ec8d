"""Parse ``If-Match`` and ``If-None-Match`` of a tag for both planes (RFC 9110 §13).

The entity tag of a tag is ``"<digest>"``, always strong.
"""

from __future__ import annotations

from cloudcore.entity_tags import tags_named
from registry.services.tags.pointers import Precondition


def tag_precondition(match: str | None, none_match: str | None) -> Precondition | None:
    """Return the precondition in ``If-Match`` and ``If-None-Match``, or None without either.

    A header without a valid entity tag (quotes left out, ``"*"`` in quotes) fails for every
    existing tag, as the client did want some condition.
    """
    if match is None and none_match is None:
        return None
    return Precondition(
        None if match is None else tags_named(match, strongly=True),
        None if none_match is None else tags_named(none_match) or frozenset({"*"}),
    )

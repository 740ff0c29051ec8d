"""The pages of a list before and after the one that is shown.

A marker of ``/v1`` leads on only. So the address of a page has the markers of those before it, the
last ones if there are many.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

_FIRST: Final = "-"
"""Stands for the first page, which has no marker."""
_MOST: Final = 20
"""Markers of an address: of some 100 characters each."""


class Turns(NamedTuple):
    """The parameters of other pages, but for those of the list itself."""

    before: str | None
    """Of the page before, empty if that is the first; None if there is none, or it is not known."""
    after: str | None


def turns(query: Mapping[str, str], meta: Mapping[str, Any], parameter: str = "marker") -> Turns:
    """Return how to turn the page; `parameter` is that of the marker."""
    past = "before" if parameter == "marker" else f"{parameter}-before"
    here = query.get(parameter)
    known = query.get(past, "").split(",") if query.get(past) else []
    before = after = None
    if here and known:
        *earlier, last = known
        before = "" if last == _FIRST else _encoded({parameter: last, past: ",".join(earlier)})
    if meta["has_more"]:
        trail = ",".join([*known, here or _FIRST][-_MOST:])
        after = _encoded({parameter: meta["marker"], past: trail})
    return Turns(before, after)


def address_of(fields: Mapping[str, str | None]) -> str:
    """Return the query of a list with its filters, to which those of a page can be added."""
    return f"?{_encoded(fields)}"


def _encoded(fields: Mapping[str, str | None]) -> str:
    return urlencode({name: value for name, value in fields.items() if value})

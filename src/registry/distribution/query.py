"""Parse the query parameters of ``/v2``; refuse ambiguous ones."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from cloudcore.errors import InvalidInput
from cloudcore.web.query import parse_fields
from registry.errors import ListQueryInvalid, NameInvalid
from registry.oci.reference import Name, parse_name

_NUMBER: Final = re.compile(r"[0-9]+")
_MAX_PARAMETERS: Final = 200
_MAX_CURSOR: Final = 512


class Query:
    """The parameters of one request, each with all its values in order."""

    def __init__(self, query_string: bytes, *, is_form: bool = False) -> None:
        """Parse a query, where ``+`` is literal (RFC 3986), or a form, where it is a space."""
        self._values: dict[str, list[str]] = {}
        if not query_string:
            return
        if not query_string.isascii():
            raise _unreadable()
        try:
            fields = parse_fields(query_string, max_fields=_MAX_PARAMETERS, plus_is_blank=is_form)
        except InvalidInput:
            raise _unreadable() from None
        for key, value in fields:
            self._values.setdefault(key, []).append(value)

    def has(self, key: str) -> bool:
        """Return True if the parameter is given."""
        return key in self._values

    def all(self, key: str) -> list[str]:
        """Return all values of a parameter."""
        return self._values.get(key, [])

    def one(self, key: str, error: type[InvalidInput] = InvalidInput) -> str | None:
        """Return the value of a parameter, or None; raise `error` if it is given more than once."""
        values = self._values.get(key)
        if values is None:
            return None
        if len(values) > 1:
            raise error(f"the parameter {key} is given more than once")
        return values[0]


def page_size(query: Query, default: int, most: int) -> int:
    """Return ``n``, at most `most`, or `default` if it is absent (end-8b).

    Raises:
        ListQueryInvalid: it is not a decimal number, or given more than once.

    """
    text = query.one("n", ListQueryInvalid)
    if text is None:
        return default
    if not _NUMBER.fullmatch(text):
        raise ListQueryInvalid("n must be a number of entries, at least 0")
    return most if len(text) > 9 else min(int(text), most)


def page_cursor(query: Query) -> str:
    """Return ``last``, after which the page starts, or "" if it is absent.

    Raises:
        ListQueryInvalid: it has a control character, is too long, or is given more than once.

    """
    text = query.one("last", ListQueryInvalid) or ""
    if len(text) > _MAX_CURSOR or not text.isprintable():
        raise ListQueryInvalid("last must be an entry of the list")
    return text


def mount_source(query_string: bytes) -> Name | None:
    """Return the repository in ``from`` of a mount, or None without a mount or a valid name."""
    try:
        query = Query(query_string)
        return parse_name(query.one("from") or "") if query.has("mount") else None
    except (InvalidInput, NameInvalid):
        return None


def next_link(path: str, **parameters: str | int) -> tuple[bytes, bytes]:
    """Return the ``Link`` header to the next page (RFC 8288)."""
    query = "&".join(f"{key}={quote(str(value), safe='')}" for key, value in parameters.items())
    return (b"link", f'<{path}?{query}>; rel="next"'.encode())


def _unreadable() -> InvalidInput:
    return InvalidInput(
        f"the query must be percent-encoded UTF-8 of at most {_MAX_PARAMETERS} parameters"
    )

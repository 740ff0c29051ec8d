"""Query parameters of ``/v2``, read strictly: what is ambiguous is refused."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, quote

from cloudcore.errors import InvalidInput
from registry.errors import ListQueryInvalid, NameInvalid
from registry.oci.reference import Name, parse_name

_NUMBER: Final = re.compile(r"[0-9]+")
_MAX_PARAMETERS: Final = 200
_MAX_CURSOR: Final = 512


class Query:
    """The parameters of one request, each with all its values in order."""

    def __init__(self, query_string: bytes, *, is_form: bool = False) -> None:
        """Read a query: a plus is a plus (RFC 3986), but in a form it stands for a blank."""
        self._values: dict[str, list[str]] = {}
        if not query_string:
            return
        try:
            pairs = parse_qsl(
                (query_string if is_form else query_string.replace(b"+", b"%2B")).decode("ascii"),
                keep_blank_values=True,
                max_num_fields=_MAX_PARAMETERS,
                errors="strict",
            )
        except ValueError:
            raise InvalidInput(
                f"the query must be percent-encoded UTF-8 of at most {_MAX_PARAMETERS} parameters"
            ) from None
        for key, value in pairs:
            self._values.setdefault(key, []).append(value)

    def has(self, key: str) -> bool:
        """Say whether the parameter is given at all."""
        return key in self._values

    def all(self, key: str) -> list[str]:
        """Return every value of a parameter."""
        return self._values.get(key, [])

    def one(self, key: str, error: type[InvalidInput] = InvalidInput) -> str | None:
        """Return the value of a parameter that may be given once.

        Raises:
            InvalidInput: it is given twice; raised as `error`.

        """
        values = self._values.get(key)
        if values is None:
            return None
        if len(values) > 1:
            raise error(f"the parameter {key} is given more than once")
        return values[0]


def page_size(query: Query, default: int, most: int) -> int:
    """Return ``n``, clamped to `most`; `default` when it is absent (end-8b).

    Raises:
        ListQueryInvalid: it is not a plain number, or given twice.

    """
    text = query.one("n", ListQueryInvalid)
    if text is None:
        return default
    if not _NUMBER.fullmatch(text):
        raise ListQueryInvalid("n must be a number of entries, at least 0")
    return most if len(text) > 9 else min(int(text), most)


def page_cursor(query: Query) -> str:
    """Return ``last``: entries after it are listed; empty when absent.

    Raises:
        ListQueryInvalid: it holds a control character, is overlong, or is given twice.

    """
    text = query.one("last", ListQueryInvalid) or ""
    if len(text) > _MAX_CURSOR or not text.isprintable():
        raise ListQueryInvalid("last must be an entry of the list")
    return text


def mount_source(query_string: bytes) -> Name | None:
    """Return the repository that a mount names in ``from``, or None if the name is malformed."""
    try:
        query = Query(query_string)
        return parse_name(query.one("from") or "") if query.has("mount") else None
    except (InvalidInput, NameInvalid):
        return None


def next_link(path: str, **parameters: str | int) -> tuple[bytes, bytes]:
    """Return the ``Link`` header to the next page (RFC 8288)."""
    query = "&".join(f"{key}={quote(str(value), safe='')}" for key, value in parameters.items())
    return (b"link", f'<{path}?{query}>; rel="next"'.encode())

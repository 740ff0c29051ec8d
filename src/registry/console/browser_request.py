"""Read a browser's request strictly: headers, cookies, query and form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from litestar import Request
from litestar.exceptions import InternalServerException

from cloudcore.errors import InvalidInput
from cloudcore.identity.oauth.forms import parse_form
from cloudcore.serving.asgi import header_values
from cloudcore.web.query import parse_fields

Scope = Any
"""An ASGI scope."""

_MAX_PARAMETERS: Final = 32
_MAX_FIELDS: Final = 512
"""Maximum number of fields in a form: a lifecycle policy may have 50 rules of eight fields."""


def header_of(scope: Scope, name: bytes) -> str | None:
    """Return the value of a header that occurs exactly once, else None."""
    values = header_values(scope, name)
    return values[0].decode("latin-1") if len(values) == 1 else None


def host_of(scope: Scope) -> str:
    """Return the host and port under which the browser sent a request."""
    return header_of(scope, b"host") or ""


def raw_path_of(scope: Scope) -> str:
    """Return the path as it was sent; the console's own paths need no percent-encoding."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    return path.decode("latin-1")


def cookies_of(scope: Scope) -> dict[str, str]:
    """Return the cookies by name; of several with the same name, the first.

    The first cookie has the longest path (RFC 6265 §5.4), so it is the console's own, and not that
    of another application on the host.
    """
    found: dict[str, str] = {}
    headers = header_values(scope, b"cookie")
    for pair in b";".join(headers).decode("latin-1").split(";"):
        name, _, value = pair.partition("=")
        found.setdefault(name.strip(), value.strip())
    return found


def query_of(scope: Scope) -> dict[str, str]:
    """Return the query parameters that are not empty; of several with the same name, the last.

    Raise `InvalidInput` if there are too many.
    """
    fields = parse_fields(scope["query_string"], max_fields=_MAX_PARAMETERS, not_utf8="replace")
    return {name: value for name, value in fields if value}


def is_whole_number(text: str, digits: int) -> bool:
    """Return True if a text is a whole number of at most `digits` digits."""
    return text.isascii() and text.isdigit() and len(text) <= digits


async def form_of(request: Request[Any, Any, Any]) -> Mapping[str, str]:
    """Return the fields of the form in a request; an empty mapping if it has no body.

    Raise `InvalidInput` if the body is not a form, repeats a field, or ended early.
    """
    try:
        body = await request.body()
    except InternalServerException:
        raise InvalidInput("the form did not arrive whole") from None
    if not body:
        return {}
    return parse_form(header_values(request.scope, b"content-type"), body, _MAX_FIELDS)

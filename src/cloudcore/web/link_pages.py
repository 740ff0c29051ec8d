"""Pages that recipients of mail open through a link whose token is the only credential.

Opening a link changes nothing, because mail scanners open links; only a button does.
"""

from __future__ import annotations

from html import escape
from typing import Any, Final

from litestar import MediaType, Request, Response
from msgspec import Struct, field

from cloudcore.errors import InvalidInput
from cloudcore.web.query import parse_fields

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width">
<style>body{{font:1rem/1.5 system-ui;max-width:36rem;margin:4rem auto;padding:0 1rem}}
button{{font:inherit;padding:.4rem 1rem}}</style></head>
<body><h1>{title}</h1><p>{words}</p>{rest}</body></html>
"""
MAX_FORM_BYTES: Final = 4096
_MAX_FIELDS: Final = 8


class LinkQuery(Struct):
    """The query of a link."""

    token: str = ""


class LinkForm(Struct):
    """The form of a page's button."""

    token: str = ""


class OneClickForm(LinkForm):
    """The form that a mail program posts (RFC 8058 §3.2), or the page."""

    one_click: str = field(name="List-Unsubscribe", default="")


FOR_LINKS: Final = {"action": None, "public": True, "query": LinkQuery, "pages": (200,)}
"""Options of a route that shows a page."""
FOR_ONE_CLICK: Final = {**FOR_LINKS, "form": OneClickForm, "pages": (200, 400)}
"""Options of a route that unsubscribes; its token is in the query or in the form."""


async def token_given(request: Request[Any, Any, Any]) -> str:
    """Return the token in a request's query, else the one in its form, else an empty string."""
    return token_of(request.scope["query_string"]) or token_of(await request.body())


def token_of(encoded: bytes) -> str:
    """Return the token in a query or a form, or an empty string."""
    try:
        return dict(parse_fields(encoded, max_fields=_MAX_FIELDS)).get("token", "")
    except InvalidInput:
        return ""


def button(action: str, token: str, label: str) -> str:
    """Return a form with only one button, which posts the token."""
    return (
        f'<form method="post" action="{action}">'
        f'<input type="hidden" name="token" value="{escape(token)}">'
        f"<button>{label}</button></form>"
    )


def page(title: str, words: str, rest: str = "", *, status: int = 200) -> Response[str]:
    """Return a page; `words` and `rest` are HTML."""
    html = _PAGE.format(title=title, words=words, rest=rest)
    return Response(html, status_code=status, headers=HEADERS, media_type=MediaType.HTML)


def refused() -> Response[str]:
    """Return the page for a token that is not valid."""
    words = "The link is not valid: it may have expired or been used, or there is a newer one."
    return page("This link does nothing", words, status=400)

"""What recipients open: confirm a subscription, or end it. The token in the link is all they need.

Opening a link changes nothing, so that scanners of mail neither confirm nor unsubscribe.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from litestar import MediaType, Request, Response, get, post
from litestar.di import NamedDependency
from litestar.params import JSONBody

from cloudcore.errors import InvalidInput
from cloudcore.notifications import subscribing
from cloudcore.notifications.envelope import CONFIRM_PATH, UNSUBSCRIBE_PATH
from cloudcore.notifications.recipient_pages import (
    HEADERS,
    confirm_page,
    confirmed_page,
    refused_page,
    unsubscribe_page,
    unsubscribed_page,
)
from cloudcore.notifications.signing import read_unsubscribe_token
from cloudcore.notifications.subscription_shapes import Confirm, Confirmed
from cloudcore.web.context import RequestContext
from cloudcore.web.urlencoded import parse_fields

PATH: Final = "/v1/subscription-confirmations"
_MAX_FORM_BYTES: Final = 4096
_MAX_FIELDS: Final = 8


class LinkQuery(msgspec.Struct):
    """The query of a link."""

    token: str = ""


class OneClick(msgspec.Struct):
    """The form that a mail program posts (RFC 8058 §3.2), or the page."""

    token: str = ""


@post(PATH, status_code=200, opt={"action": None, "public": True})
async def confirm_subscription(
    data: JSONBody[Confirm], ctx: NamedDependency[RequestContext]
) -> Confirmed:
    """Confirm a subscription by its token; any other token is refused alike."""
    found, topic_name = await ctx.database.write(subscribing.confirm, data.token, ctx.clock())
    return Confirmed(
        subscription_id=found.id,
        endpoint=found.endpoint,
        status=found.status,
        topic_name=topic_name,
    )


@get(
    CONFIRM_PATH,
    opt={"action": None, "public": True, "query": LinkQuery, "pages": (200,)},
)
async def show_confirmation(request: Request[Any, Any, Any]) -> Response[str]:
    """Show a page whose button confirms the subscription; it does not look at the token."""
    return _page(200, confirm_page(_token(request.scope["query_string"])))


@post(
    CONFIRM_PATH,
    status_code=200,
    request_max_body_size=_MAX_FORM_BYTES,
    opt={"action": None, "public": True, "form": OneClick, "pages": (200, 400)},
)
async def confirm_on_page(
    request: Request[Any, Any, Any], ctx: NamedDependency[RequestContext]
) -> Response[str]:
    """Confirm the subscription, as the page's button asks."""
    token = _token(await request.body())
    try:
        found, topic_name = await ctx.database.write(subscribing.confirm, token, ctx.clock())
    except InvalidInput:
        return _page(400, refused_page())
    return _page(200, confirmed_page(found.endpoint, topic_name))


@get(
    UNSUBSCRIBE_PATH,
    opt={"action": None, "public": True, "query": LinkQuery, "pages": (200,)},
)
async def show_unsubscription(request: Request[Any, Any, Any]) -> Response[str]:
    """Show a page whose button ends the subscription."""
    return _page(200, unsubscribe_page(_token(request.scope["query_string"])))


@post(
    UNSUBSCRIBE_PATH,
    status_code=200,
    request_max_body_size=_MAX_FORM_BYTES,
    opt={
        "action": None,
        "public": True,
        "query": LinkQuery,
        "form": OneClick,
        "pages": (200, 400),
    },
)
async def unsubscribe(
    request: Request[Any, Any, Any], ctx: NamedDependency[RequestContext]
) -> Response[str]:
    """End a subscription: one click in a mail program, or the page's button.

    The token is in the query or the form. A subscription that is gone already is a success.
    """
    token = _token(request.scope["query_string"]) or _token(await request.body())
    named = read_unsubscribe_token(ctx.keyring, token)
    if named is None:
        return _page(400, refused_page())
    await ctx.database.write(subscribing.unsubscribe, *named)
    return _page(200, unsubscribed_page())


def _token(encoded: bytes) -> str:
    """Return the token of a query or a form; empty if there is none."""
    try:
        return dict(parse_fields(encoded, max_fields=_MAX_FIELDS)).get("token", "")
    except InvalidInput:
        return ""


def _page(status: int, html: str) -> Response[str]:
    return Response(html, status_code=status, headers=HEADERS, media_type=MediaType.HTML)


HANDLERS: Final = (
    confirm_subscription,
    show_confirmation,
    confirm_on_page,
    show_unsubscription,
    unsubscribe,
)

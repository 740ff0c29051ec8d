"""Pages and routes for recipients: confirm a subscription, or end it, by the token in a link.

Opening a link changes nothing, so that scanners of mail neither confirm nor unsubscribe.
"""

from __future__ import annotations

from html import escape
from typing import Any, Final

from litestar import Request, Response, get, post
from litestar.params import JSONBody

from cloudcore.db.base import Connection
from cloudcore.errors import InvalidInput
from cloudcore.notifications import subscribing
from cloudcore.notifications.envelope import CONFIRM_PATH, UNSUBSCRIBE_PATH, read_unsubscribe_token
from cloudcore.notifications.topic import WEBHOOKS, Status, Subscription, Topic
from cloudcore.outbound.destinations import origin_of
from cloudcore.resource_names import Uuid
from cloudcore.web import link_pages
from cloudcore.web.app import Context
from cloudcore.web.context import RequestContext
from cloudcore.wire import RequestBody, ResponseBody

PATH: Final = "/v1/subscription-confirmations"
CONFIRM: Final = "notifications:ConfirmSubscription"
UNSUBSCRIBE: Final = "notifications:Unsubscribe"
"""The actions in the audit log when a link is used; no policy names them."""


class Confirm(RequestBody):
    """The token of a request to confirm a subscription."""

    token: str
    """The token, or the whole link that it came in."""


class Confirmed(ResponseBody):
    """The subscription that was confirmed."""

    subscription_id: Uuid
    endpoint: str
    status: Status
    topic_name: str


@post(PATH, status_code=200, opt={"action": None, "public": True})
async def confirm_subscription(data: JSONBody[Confirm], ctx: Context) -> Confirmed:
    """Confirm a subscription by its token; all invalid tokens get the same error."""
    text = data.token.strip()
    is_link = text.startswith(("https://", "http://"))
    token = link_pages.token_of(text.partition("?")[2].encode()) if is_link else text
    found, topic = await ctx.database.write(_confirm, ctx, token)
    return Confirmed(
        subscription_id=found.id,
        endpoint=found.endpoint,
        status=found.status,
        topic_name=topic.name,
    )


@get(
    CONFIRM_PATH,
    opt=link_pages.FOR_LINKS,
)
async def show_confirmation(request: Request[Any, Any, Any]) -> Response[str]:
    """Show a page whose button confirms the subscription; it does not look at the token."""
    return link_pages.page(
        "Confirm the subscription?",
        "You were asked to confirm a subscription. If you do not expect this, do nothing.",
        link_pages.button(
            CONFIRM_PATH, link_pages.token_of(request.scope["query_string"]), "Confirm"
        ),
    )


@post(
    CONFIRM_PATH,
    status_code=200,
    request_max_body_size=link_pages.MAX_FORM_BYTES,
    opt={"action": None, "public": True, "form": link_pages.LinkForm, "pages": (200, 400)},
)
async def confirm_on_page(request: Request[Any, Any, Any], ctx: Context) -> Response[str]:
    """Confirm the subscription, at the request of the page's button."""
    token = link_pages.token_of(await request.body())
    try:
        found, topic = await ctx.database.write(_confirm, ctx, token)
    except InvalidInput:
        return link_pages.refused()
    endpoint, name = escape(found.endpoint), escape(topic.name)
    return link_pages.page(
        "Confirmed", f"{endpoint} is sent what is published to {name} from now on."
    )


@get(
    UNSUBSCRIBE_PATH,
    opt=link_pages.FOR_LINKS,
)
async def show_unsubscription(request: Request[Any, Any, Any]) -> Response[str]:
    """Show a page whose button ends the subscription."""
    return link_pages.page(
        "Unsubscribe?",
        "Nothing more will be sent to you for this subscription.",
        link_pages.button(
            UNSUBSCRIBE_PATH, link_pages.token_of(request.scope["query_string"]), "Unsubscribe"
        ),
    )


@post(
    UNSUBSCRIBE_PATH,
    status_code=200,
    request_max_body_size=link_pages.MAX_FORM_BYTES,
    opt=link_pages.FOR_ONE_CLICK,
)
async def unsubscribe(request: Request[Any, Any, Any], ctx: Context) -> Response[str]:
    """End a subscription, at one click in a mail program or on the page's button.

    The token is in the query or the form. It is a success if the subscription is already gone.
    """
    token = await link_pages.token_given(request)
    named = read_unsubscribe_token(ctx.keyring, token)
    if named is None:
        return link_pages.refused()
    await ctx.database.write(_unsubscribe, ctx, *named)
    return link_pages.page("Unsubscribed", "Nothing more will be sent to you.")


def _confirm(tx: Connection, ctx: RequestContext, token: str) -> tuple[Subscription, Topic]:
    found, topic = subscribing.confirm(tx, token, ctx.clock())
    _audit(tx, ctx, CONFIRM, found, topic)
    return found, topic


def _unsubscribe(
    tx: Connection, ctx: RequestContext, account_id: str, subscription_id: str
) -> None:
    ended = subscribing.unsubscribe(tx, account_id, subscription_id)
    if ended is not None:
        _audit(tx, ctx, UNSUBSCRIBE, *ended)


def _audit(
    tx: Connection, ctx: RequestContext, action: str, found: Subscription, topic: Topic
) -> None:
    """Write the audit event of a used link.

    Of a webhook's URL, the event has only the origin, as the path may be a secret.
    """
    where = origin_of(found.endpoint) if found.protocol in WEBHOOKS else found.endpoint
    details = {
        "topic_id": topic.id,
        "subscription_id": found.id,
        "protocol": found.protocol,
        "endpoint": where,
    }
    owners = [found.account_id]
    ctx.audit(tx, action, owners, principal="", source=None, resource=topic.crn, details=details)

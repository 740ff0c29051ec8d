"""``/v1/email-unsubscriptions``: the unsubscribe links of recipients.

Opening a link changes nothing; only a POST by a mail program, or by the page's button,
unsubscribes.
"""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, get, post

from cloudcore.account_rows import handle_of
from cloudcore.db.base import Connection
from cloudcore.email import suppressions
from cloudcore.email.resources import SUPPRESSION, UNSUBSCRIBE
from cloudcore.email.suppressions import PATH, Unsubscription, read_unsubscribe_token
from cloudcore.web.app import Context
from cloudcore.web.context import RequestContext
from cloudcore.web.link_pages import (
    FOR_LINKS,
    FOR_ONE_CLICK,
    MAX_FORM_BYTES,
    button,
    page,
    refused,
    token_given,
    token_of,
)


@get(PATH, opt=FOR_LINKS)
async def show_email_unsubscription(request: Request[Any, Any, Any]) -> Response[str]:
    """Show a page whose button suppresses the address; it does not look at the token."""
    return page(
        "Unsubscribe?",
        "The sender of the message will be able to send nothing more to your address.",
        button(PATH, token_of(request.scope["query_string"]), "Unsubscribe"),
    )


@post(PATH, status_code=200, request_max_body_size=MAX_FORM_BYTES, opt=FOR_ONE_CLICK)
async def unsubscribe_from_email(request: Request[Any, Any, Any], ctx: Context) -> Response[str]:
    """Suppress an address, at one click in a mail program or on the page's button.

    The token is in the query or the form. It is a success if the address is already suppressed.
    """
    token = await token_given(request)
    named = read_unsubscribe_token(ctx.keyring, token)
    if named is None:
        return refused()
    await ctx.database.write(_unsubscribe, ctx, named)
    return page("Unsubscribed", "Nothing more will be sent to you by this sender.")


def _unsubscribe(tx: Connection, ctx: RequestContext, of: Unsubscription) -> None:
    if not handle_of(tx, of.account_id):
        return
    made = suppressions.add_automatic(tx, ctx.new_id(), of, "unsubscribe", ctx.clock())
    if made is not None:
        details = {"suppression_id": made.id, "message_id": of.message_id}
        crn = SUPPRESSION.crn_of(made)
        owners = [made.account_id]
        ctx.audit(tx, UNSUBSCRIBE, owners, principal="", source=None, resource=crn, details=details)

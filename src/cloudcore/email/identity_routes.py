"""Verify a sending identity at its owner's request, and confirm an address by a mailed link."""

from __future__ import annotations

from html import escape
from typing import Any

from litestar import Request, Response, get, post
from litestar.params import FromPath

from cloudcore.db.base import Connection
from cloudcore.email.identity_verification import CONFIRM_PATH, confirm, tell_status
from cloudcore.email.needs import EmailNeeds
from cloudcore.email.resources import CONFIRM, SENDING_IDENTITY, SendingIdentity
from cloudcore.email.sending_identities import IDENTITIES, verify
from cloudcore.resources.confirmations import BadToken
from cloudcore.resources.routes import custom_method
from cloudcore.web.app import Context, Needs
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.link_pages import (
    FOR_LINKS,
    MAX_FORM_BYTES,
    LinkForm,
    button,
    page,
    refused,
    token_of,
)
from cloudcore.wire import ResponseBody


@custom_method(IDENTITIES, "verify", "email:VerifyIdentity", status=202, statuses=(409, 429))
async def verify_identity(identity_id: FromPath[str], ctx: Context) -> Reply[ResponseBody]:
    """Look for the record of a domain now, or send an address a new link.

    The previous link is no longer valid. An address that is already verified is refused (409).
    """
    found = await IDENTITIES.authorized(ctx, identity_id)
    now = ctx.clock()
    return await ctx.commit(verify, found, ctx.keyring, now, wrap=IDENTITIES.at(now))


@get(CONFIRM_PATH, opt=FOR_LINKS)
async def show_identity_confirmation(request: Request[Any, Any, Any]) -> Response[str]:
    """Show a page whose button confirms an address; it does not look at the token."""
    return page(
        "Allow mail from your address?",
        "You were asked to let mail be sent from your address. If you do not expect this,"
        " do nothing.",
        button(CONFIRM_PATH, token_of(request.scope["query_string"]), "Allow it"),
    )


@post(
    CONFIRM_PATH,
    status_code=200,
    request_max_body_size=MAX_FORM_BYTES,
    opt={"action": None, "public": True, "form": LinkForm, "pages": (200, 400)},
)
async def confirm_identity(
    request: Request[Any, Any, Any], ctx: Context, needs: Needs[EmailNeeds]
) -> Response[str]:
    """Confirm an address, at the request of the page's button."""
    token = token_of(await request.body())
    try:
        found = await ctx.database.write(_confirm, ctx, needs, token)
    except BadToken:
        return refused()
    return page("Confirmed", f"Mail may be sent from {escape(found.value)} from now on.")


def _confirm(tx: Connection, ctx: RequestContext, needs: EmailNeeds, token: str) -> SendingIdentity:
    """Confirm an address; publish its new status, and write an audit event of its account."""
    found = confirm(tx, token, ctx.clock())
    tell_status(needs, tx, found)
    crn, details = SENDING_IDENTITY.crn_of(found), {"identity_id": found.id}
    owners = [found.account_id]
    ctx.audit(tx, CONFIRM, owners, principal="", source=None, resource=crn, details=details)
    return found

"""``…/signing-secret`` and ``…/resend-confirmation``: acts on one subscription."""

from __future__ import annotations

from typing import Final

from litestar import get, post
from litestar.di import NamedDependency
from litestar.params import FromPath

from cloudcore.notifications import signing, subscribing
from cloudcore.notifications.subscription import Subscription
from cloudcore.notifications.subscription_routes import (
    ONE,
    authorized_subscription,
    one_subscription,
)
from cloudcore.notifications.subscription_shapes import SUBSCRIPTIONS, SigningSecret
from cloudcore.resources.routes import answers_one
from cloudcore.web.context import Reply, RequestContext
from cloudcore.wire import ResponseBody, rfc3339

SECRET: Final = ONE + "/signing-secret"


@get(SECRET, opt={"action": "notifications:GetSigningSecret"})
async def get_signing_secret(
    topic_id: FromPath[str],
    subscription_id: FromPath[str],
    ctx: NamedDependency[RequestContext],
) -> SigningSecret:
    """Return what signs the deliveries to a webhook."""
    found = await authorized_subscription(ctx, topic_id, subscription_id)
    subscribing.check_has_secret(found)
    return _secret(ctx, found)


@post(
    SECRET + "/rotate",
    status_code=200,
    opt={"action": "notifications:RotateSigningSecret", "idempotent": True},
)
async def rotate_signing_secret(
    topic_id: FromPath[str],
    subscription_id: FromPath[str],
    ctx: NamedDependency[RequestContext],
) -> Reply[SigningSecret]:
    """Give a webhook a new secret; for 24 hours the one before signs each delivery too."""
    found = await authorized_subscription(ctx, topic_id, subscription_id)
    sealed = signing.seal_secret(ctx.keyring, found.id, signing.new_secret())
    return await ctx.commit(
        subscribing.rotate_secret,
        found,
        sealed,
        ctx.clock(),
        wrap=lambda changed: _secret(ctx, changed),
    )


@post(
    ONE + "/resend-confirmation",
    status_code=202,
    opt={"action": "notifications:ResendConfirmation", "idempotent": True, "statuses": (409, 429)},
)
@answers_one(SUBSCRIPTIONS)
async def resend_confirmation(
    topic_id: FromPath[str],
    subscription_id: FromPath[str],
    ctx: NamedDependency[RequestContext],
) -> Reply[ResponseBody]:
    """Ask the endpoint again to confirm, with a new token; the one before is no longer valid.

    An endpoint is asked at most 10 times an hour, and an account's 300 times; then it is 429.
    """
    found = await authorized_subscription(ctx, topic_id, subscription_id)
    nonce = signing.new_nonce()
    token = signing.confirmation_token(ctx.keyring, found.id, nonce)
    return await ctx.commit(
        subscribing.resend_confirmation,
        found,
        nonce,
        token,
        ctx.clock(),
        wrap=lambda changed: one_subscription(ctx, changed),
    )


def _secret(ctx: RequestContext, found: Subscription) -> SigningSecret:
    assert found.signing_secret is not None
    until, previous = found.previous_until, None
    if until is not None and found.previous_secret is not None and until > ctx.clock():
        previous = signing.open_secret(ctx.keyring, found.id, found.previous_secret)
    return SigningSecret(
        signing_secret=signing.open_secret(ctx.keyring, found.id, found.signing_secret),
        previous_signing_secret=previous,
        previous_expires_at=None if previous is None or until is None else rfc3339(until),
    )


HANDLERS: Final = (get_signing_secret, rotate_signing_secret, resend_confirmation)
